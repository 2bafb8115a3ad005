"""For Keras and TensorFlow scripts: reporting, saving, stopping in time, and SGD noise.

import mlcd.keras
model.fit(dataset, epochs=200, callbacks=[mlcd.keras.Progress(batch_size=192)])

and in custom training steps under tf.distribute, where the workers' gradients are summed:

gradients = mlcd.keras.all_reduce(gradients)

and on the chief of a ParameterServerStrategy, where it collects them from the workers:

gradients = mlcd.keras.aggregate([part.fetch() for part in parts])
"""

from mlcd.training.frameworks import without_framework

try:
    from mlcd.keras.distribute import aggregate, all_reduce
    from mlcd.keras.progress import Progress
except ModuleNotFoundError as error:
    raise without_framework(error, package="keras", module="mlcd.keras") from error

__all__ = ["Progress", "aggregate", "all_reduce"]
