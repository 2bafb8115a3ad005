"""What the job files of the six measured trainings say of their length: the script's epochs, as samples.

From the published scripts (petuum/adaptdl, branch osdi21-artifact, benchmark/models), not from the tables.
"""

PLANNED_SAMPLES = {
    "bert": 88_641 * 2.0,  # SQuAD 1.1 at 384 tokens with a stride of 128
    "cifar10": 50_000 * 100.0,
    "deepspeech2": 7_140 * 80.0,
    "imagenet": 1_281_167 * 90.0,
    "ncf": 4_970_845 * 10.0,  # MovieLens-1M with 4 negatives a rating
    "yolov3": 16_551 * 50.0,  # VOC 2007 and 2012
}
