"""Descriptions of the six measured jobs that need no run: from published scripts and models, not from the tables.

Scripts: petuum/adaptdl, branch osdi21-artifact, benchmark/models (network, data set, epochs). Operations are three
times those of the forward pass, two for each multiply-add; where a script does not state them they are counted from the
network's layers.
"""

from mlcd.models.universal import JobDescription

DESCRIPTIONS = {
    # BERT-base, SQuAD 1.1 at 384 tokens with a stride of 128: 85 M parameters outside the embeddings, and attention.
    "bert": JobDescription(parameters=110e6, gflop_per_sample=212, samples_per_epoch=88_641, epochs=2),
    # ResNet-18 on 32 x 32 pixels: 0.56 G multiply-adds.
    "cifar10": JobDescription(parameters=11.2e6, gflop_per_sample=3.3, samples_per_epoch=50_000, epochs=100),
    # 2 convolutions, 5 bidirectional GRU layers of 800; some 3.5 s of speech, 160 steps after the stride of 2.
    "deepspeech2": JobDescription(parameters=41e6, gflop_per_sample=49, samples_per_epoch=7_140, epochs=80),
    # ResNet-50 on 224 x 224 pixels: 4.1 G multiply-adds.
    "imagenet": JobDescription(parameters=25.6e6, gflop_per_sample=24.6, samples_per_epoch=1_281_167, epochs=90),
    # NeuMF, 32 factors, 3 layers, MovieLens-1M with 4 negatives a rating: the tables are the parameters.
    "ncf": JobDescription(parameters=1.6e6, gflop_per_sample=0.00026, samples_per_epoch=4_970_845, epochs=10),
    # Darknet-53 head on 448 x 448 pixels: 65.9 G operations at 416, by area; VOC 2007 and 2012.
    "yolov3": JobDescription(parameters=61.6e6, gflop_per_sample=229, samples_per_epoch=16_551, epochs=50),
}
