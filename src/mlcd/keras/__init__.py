"""For Keras and TensorFlow scripts: reporting, saving, ending in time, and SGD noise.

import mlcd.keras
model.fit(dataset, epochs=200, callbacks=[mlcd.keras.Progress(batch_size=192)])

and in training steps that a script writes out under tf.distribute, where the workers' gradients are added up:

gradients = mlcd.keras.all_reduce(gradients)
"""

from mlcd.keras.distribute import all_reduce
from mlcd.keras.progress import Progress

__all__ = ["Progress", "all_reduce"]
