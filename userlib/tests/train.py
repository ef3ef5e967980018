# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""A training script as people write them: a small transformer or a small ResNet, with a fixed
seed, on the GPU if there is one. It imports PyTorch alone, and nothing of this project.

    train.py transformer|resnet [STEPS]      prints the loss of each step, to the last bit
"""

import sys

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


class Transformer(nn.Module):
    def __init__(self, words=256, width=64):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 3)
        self.out = nn.Linear(width, words)

    def forward(self, x):
        return self.out(self.layers(self.embed(x))).flatten(0, 1)


class Block(nn.Module):
    """ResNet's basic block, whose shortcut is a convolution where the shape changes."""

    def __init__(self, before, after, stride):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True),
            nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after),
        )
        self.short = nn.Sequential()
        if stride != 1 or before != after:
            self.short = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.main(x)
        out += self.short(x)
        return self.relu(out)


def resnet():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True),
        Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )


def network(name, batch=None):
    """A network with fixed weights, and a batch with its labels."""
    torch.manual_seed(7)
    if name == "transformer":
        model, words = Transformer(), torch.randint(0, 256, (batch or 64, 65))
        return model, words[:, :-1], words[:, 1:].flatten()
    return resnet(), torch.randn(batch or 96, 3, 32, 32), torch.randint(0, 10, (batch or 96,))


def main(name, steps):
    model, data, labels = network(name)
    model, data, labels = model.to(device), data.to(device), labels.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(data), labels)
        loss.backward()
        optimizer.step()
        print("loss", loss.item().hex())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 4)
