# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Small models for the tests, and examples of what uvmsim_torch.py takes."""

import torch
from torch import nn
from torch.nn import functional as F


def mlp(batch):
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    target = torch.zeros(batch, dtype=torch.long, device="meta")
    return model, (torch.zeros(batch, 64),), lambda y: F.cross_entropy(y, target)


def vgg16(batch):
    """VGG-16 as torchvision has it."""
    layers = []
    channels = 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
            channels = width
        layers.append(nn.MaxPool2d(2))
    layers += [nn.Flatten(), nn.Linear(25088, 4096), nn.ReLU(inplace=True), nn.Dropout()]
    layers += [nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4096, 1000)]
    target = torch.zeros(batch, dtype=torch.long, device="meta")
    return nn.Sequential(*layers), (torch.zeros(batch, 3, 224, 224, device="meta"),), lambda y: F.cross_entropy(y, target)


class Tied(nn.Module):
    """An embedding whose table is the output layer's weight too."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 32)
        self.body = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.head = nn.Linear(32, 100, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        return self.head(self.body(self.embed(ids)))


def tied(batch):
    target = torch.zeros(batch * 8, dtype=torch.long, device="meta")
    ids = torch.zeros(batch, 8, dtype=torch.long)
    return Tied(), (ids,), lambda y: F.cross_entropy(y.reshape(-1, 100), target)


class Stack(nn.Module):
    """Blocks in a list, as a transformer has its layers."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(32, 32), nn.ReLU()) for _ in range(3))
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def stack(batch):
    target = torch.zeros(batch, dtype=torch.long, device="meta")
    return Stack(), (torch.zeros(batch, 32),), lambda y: F.cross_entropy(y, target)
