"""The load generator for language models: streamed answers of a server with OpenAI's API.

    result = measure_chat(ChatPlan(address="http://127.0.0.1:8000", model="llama", concurrency=8, seconds=30))

It measures time to first token, time per output token, the gaps between tokens and whole requests, in a separate
process and with the standard library only. `python -m mlcd.loadgen.chat ADDRESS` does the same from a shell.
"""

from mlcd.loadgen.chat.measure import measure_chat
from mlcd.loadgen.chat.plan import ChatLimit, ChatMetric, ChatPlan, Exchange
from mlcd.loadgen.chat.result import ChatResult, ChatStep, Sample

__all__ = ["ChatLimit", "ChatMetric", "ChatPlan", "ChatResult", "ChatStep", "Exchange", "Sample", "measure_chat"]
