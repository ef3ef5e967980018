# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Records what a training by PyTorch allocates and frees: the network, its data, and some steps.

    record_allocations.py NETWORK BATCH [STEPS] > FILE

NETWORK is one of train.py's; or resnet50, vit_b_16 and others of torchvision's with images of
224 x 224; or bert-base and gpt2, as transformers has them, with sequences of 128. Weights are
random. The device is train.py's: a GPU if there is one, else the CPU, where an operator takes
what its CPU's version needs. PyTorch's profiler tells each allocation and each free.

A line is "+BYTES", the next allocation, or "-N": the allocation N is freed, counted from 0.
"""

import sys

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import train


def transformer_of(name):
    """A network of transformers' with random weights, and how its loss is had of words."""
    import transformers

    if name == "gpt2":
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config())
    else:
        model = transformers.BertForMaskedLM(transformers.BertConfig())
    return model, lambda words: model(input_ids=words, labels=words).loss


def step_of(name, batch):
    """The parameters of a network on the device, and what gives the loss of a step."""
    place = train.device
    if name in ("transformer", "resnet"):
        model, data, labels = train.network(name, batch)
    elif name in ("gpt2", "bert-base"):
        model, loss_of = transformer_of(name)
        model, words = model.to(place), torch.randint(0, 30000, (batch, 128)).to(place)
        return model.parameters(), lambda: loss_of(words)
    else:
        import torchvision

        model = torchvision.models.get_model(name, weights=None)
        data, labels = torch.randn(batch, 3, 224, 224), torch.randint(0, 1000, (batch,))
    model, data, labels = model.to(place), data.to(place), labels.to(place)
    return model.parameters(), lambda: nn.functional.cross_entropy(model(data), labels)


def train_steps(name, batch, steps):
    parameters, loss_of = step_of(name, batch)
    optimizer = torch.optim.Adam(parameters, lr=1e-3, foreach=False)
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        loss_of().backward()
        optimizer.step()


def allocations(prof):
    """(address, bytes) in the order of time, of a free with the bytes negative."""
    kind = torch._C._profiler._EventType.Allocation
    found, left = [], list(prof.profiler.kineto_results.experimental_event_tree())
    while left:
        event = left.pop()
        left.extend(event.children)
        if event.typed[0] == kind and event.typed[1].device.type == train.device:
            found.append((event.start_time_ns, event.typed[1].ptr, event.typed[1].alloc_size))
    return [(at, size) for _, at, size in sorted(found, key=lambda event: event[0])]


def lines(events):
    """The lines of the recording. What was allocated before it began is left out."""
    numbers, count = {}, 0
    for at, size in events:
        if size > 0:
            numbers[at] = count
            count += 1
            yield f"+{size}"
        elif at in numbers:
            yield f"-{numbers.pop(at)}"


def main(name, batch, steps):
    torch.set_num_threads(1)
    torch.manual_seed(7)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        train_steps(name, batch, steps)
    with open(__file__, encoding="utf-8") as this:
        print(this.readline(), end="")
    print(f"# {name}, batch {batch}, {steps} steps, PyTorch {torch.__version__} on {train.device}")
    print(*lines(allocations(prof)), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 2)
