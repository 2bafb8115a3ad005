"""How much a strategy concludes from a trial that ran out of memory."""

from typing import Literal

MemoryRules = Literal["off", "bounds", "likely", "named"]
"""What a failure for lack of memory says about other configurations; each includes those before it.

off     fewer nodes of the same type fail too
bounds  so does every configuration with no more memory per worker and no more workers, of any type with the same kind
        of worker (accelerators, or processors)
likely  configurations that probably fail too come last: the next look is one that may fit
named   the model that the job names counts from the first trial on, by its published number of parameters
"""
