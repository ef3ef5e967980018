# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What the programs gpu_*.py have in common: they say of each thing whether it holds, count those that
do not, and have PyTorch compute the same each time.
"""

bad = 0


def expect(holds, what):
    global bad
    print("ok -" if holds else "not ok -", what)
    bad += not holds


def compute_the_same():
    """With CUBLAS_WORKSPACE_CONFIG set before PyTorch is imported."""
    import torch

    torch.use_deterministic_algorithms(True)
    for fused in "flash", "mem_efficient", "cudnn":
        getattr(torch.backends.cuda, f"enable_{fused}_sdp")(False)
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    print("PyTorch", torch.__version__, "on", torch.cuda.get_device_name(0))
