# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# The front door of uvm-rust. `make help` says what there is; every target does
# the set-up it needs and may be interrupted and run again. What is built is
# cached outside the tree: see UVM_RUST_CACHE below.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.ONESHELL:

#|
#| Options, as variables:
#|   DRIVER=rust|upstream     which nvidia-uvm.ko the VM loads        (rust)
#|   VIDMEM=256M              memory of the software GPU              (256M)
#|   GPUS=1 to 8              how many software GPUs                  (1)
#|   GPU=turing|volta|ampere|hopper|blackwell  which GPU is emulated  (turing)
#|   RELEASE=1                NVIDIA's release build, asserts off     (develop)
#|   KERNEL=debug|stock       with KASAN and lockdep; as Debian has it  (release; of the demo: stock)
#|   CMD='...'                command for the VM                      (a shell)
#|   VM_TIMEOUT=600           seconds until a hung VM is ended
#|   VM_CPUS=2                CPUs of the VM; of all lanes of make test, some of which have one  (2)
#|   VGPU_ORDER=kind|adversarial  how the software GPU orders its work, by VGPU_SEED=n  (kind)
#|   OPS=10000 SEED=n         length and seed of the random program
#|   STORMS=60                how many storms both fault loops must agree on
#|   ONLY=REGEX               which parts of make test
#|   LANES=2                  how many VMs make test runs at a time
#|   FRESH=1                  run again what has passed, though nothing changed
#|   FAILED=1                 only the parts of make test that did not pass when they last ran
#|   NO_SKIPS=1               what make deps NO_SKIPS=1 installs is no reason to skip a test
#|   BARS=1                   make bench fails if a bar is missed
#|   KDIR=/path               build the modules for this kernel tree
#|   KERNEL_OPEN=/path        for make modules: NVIDIA's kernel-open, or /usr/src/nvidia-* of a package of the open modules
#|   UVM_RUST_KERNEL=own|linux  which kernel crate Rust is built with  (probed)
#|   BASE=550                 which of NVIDIA's drivers: 535, 550, 555, and, by git, 560 to 595
#|   UVM_SRC=/path            take the driver's source from here; for make test-versions, from
#|                            several places, with spaces or colons between them
#|   UVM_RUST_WHOLE=0|1       in 580 and later, which discard by themselves: statistics and the
#|                            batch call alone, or all of ours  (1)
#|   UVM_RUST_MASKS=0         build the driver without uvm_rust_masks.h
#|   DEPS_REMOVE=yes|no       what make deps may do where apt removes packages (asks)
#|   UVM_RUST_CACHE=/path     where sources and builds are kept  (~/.cache/uvm-rust)

# Options, passed on to the scripts, which know BASE by an older name.
UVM_VERSION := $(or $(UVM_VERSION),$(BASE))
export DRIVER VIDMEM GPUS GPU RELEASE KERNEL KDIR KERNEL_OPEN UVM_RUST_KERNEL UVM_VERSION UVM_SRC UVM_RUST_WHOLE UVM_RUST_MASKS UVM_RUST_CACHE
export VM_TIMEOUT VM_MEM VM_CPUS VM_ACCEL ICOUNT NOLOAD VM_KOPTS UVM_PARAMS VGPU_PARAMS VGPU_ORDER VGPU_SEED QEMU_OPTS VM_LOG
export DEPS_REMOVE OPS SEED STORMS JOBS ONLY LANES FRESH FAILED BARS NO_SKIPS

.PHONY: help
help: ## this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile
	@sed -n 's/^#| \{0,1\}//p' Makefile

.PHONY: deps
deps: ## install what the build and the VM need (Debian packages, bindgen, virtme-ng)
	@scripts/deps.sh

.PHONY: kernel
kernel: deps ## build the VM's Linux, with Rust
	@scripts/kernel.sh $(or $(KERNEL),release)

.PHONY: driver
driver: deps ## the VM's nvidia-uvm.ko, unmodified and ours, and vgpu.ko; prints where. For a GPU: make modules
	@scripts/driver.sh

.PHONY: modules
modules: export DEPS_FOR := modules
modules: deps ## all of NVIDIA's open modules with ours in place, from KERNEL_OPEN=/path; prints where
	@scripts/modules.sh

.PHONY: vm
vm: deps ## a shell in the VM, or CMD='…' there
	@scripts/vm.sh $(if $(CMD),'$(subst ','\'',$(CMD))')

# The demo needs nothing of the kernel that Debian's own has not: none is built for it there.
.PHONY: demo
demo: export KERNEL := $(or $(KERNEL),$(shell KDIR='$(KDIR)' scripts/stock.sh --default))
demo: export DEPS_FOR := demo
demo: deps ## both drivers fault, evict and give back the right bytes; no GPU needed
	@scripts/demo.sh

.PHONY: pictures
pictures: deps ## README's pictures, drawn anew from make demo and uvmtop
	@scripts/pictures.sh

.PHONY: kselftest
kselftest: deps ## the kernel selftests and what the paper says of discard, one GPU and two
	@scripts/test.sh kselftest

.PHONY: test
test: export DEPS_FOR := $(if $(filter debug,$(KERNEL)),,test)
test: deps ## everything: host tests, NVIDIA's tests on vgpu, our own in the VM
	@scripts/test.sh all

.PHONY: test-host
test-host: ## only what needs no VM
	@scripts/test.sh host

.PHONY: userlib
userlib: ## build libuvmrust, the PyTorch allocator and the preload, into out/userlib
	@$(MAKE) -C userlib

.PHONY: test-extra
test-extra: deps ## long tests, and what ends differently from run to run: see docs/testing.md
	@scripts/test.sh extra

.PHONY: test-versions
test-versions: deps ## NVIDIA's releases from 535 on: do the hooks fit, does ours build; and each tree in UVM_SRC
	@scripts/test.sh versions

.PHONY: test-debug
test-debug: deps ## the VM's tests under KASAN, lockdep and kmemleak
	@scripts/test.sh debug

.PHONY: workloads
workloads: deps ## the UvmDiscard paper's applications: traffic here, there, and required
	@scripts/workloads.sh

.PHONY: bench
bench: deps ## guest instructions per fault and per eviction, baseline against ours
	@scripts/bench.sh

.PHONY: upstream-bugs
upstream-bugs: deps ## NVIDIA's bugs that ours mends, on its driver and on ours: a table (docs/upstream-bugs.md)
	@scripts/upstream-bugs.sh $(BUGS)

.PHONY: mutants
mutants: deps ## the driver with one thing taken out, again and again: do the tests notice? (ONLY="NAME...")
	@scripts/mutants.sh $(ONLY)

.PHONY: dnn
dnn: deps ## faults and traffic of DNN training steps on the software GPU, by policy
	@scripts/dnn.sh

.PHONY: lines
lines: ## lines of C and of Rust in the driver, part by part
	@scripts/lines.sh

.PHONY: fuzz
fuzz: ## fuzz the parsers of uvmsim and the policies, FUZZ_TIME=120 seconds each
	@scripts/fuzz.sh $(FUZZ)

.PHONY: sim-demo
sim-demo: ## simulate BERT-large on a 24 GB card under every policy; writes a report
	@scripts/sim-demo.sh

.PHONY: gpu-check
gpu-check: ## check the user library on this machine's GPU, with the driver that is there
	@scripts/gpu-check.sh

.PHONY: wheel
wheel: ## build the Python package as a wheel, and test it in a fresh environment
	@scripts/wheel.sh

.PHONY: wheel-uvmrust
wheel-uvmrust: ## build the Python package of the user library as a wheel, and test it
	@scripts/wheel.sh uvmrust

.PHONY: ssd-demo
ssd-demo: deps ## programs of twice the host's memory, with an SSD behind it, in the VM
	@scripts/ssd-demo.sh

.PHONY: record-demo
record-demo: deps ## a program is recorded, planned and run with its plan, in the VM: a table
	@scripts/record-demo.sh

.PHONY: torch-demo
torch-demo: ## trainings by PyTorch's CPU build are recorded, planned and follow their plan; no GPU, no VM
	@scripts/torch-demo.sh

.PHONY: deny
deny: ## licences, sources and known holes of the crates (deny.toml); builds cargo-deny the first time
	@scripts/deny.sh

.PHONY: ci
ci: ## what CI runs: a list of its jobs, or JOB="host vm-550"
	@scripts/ci.sh $(JOB)

.PHONY: deb
deb: export DEPS_FOR := deb
deb: deps ## Debian packages for a machine with an NVIDIA GPU, into out/deb (docs/install.md)
	@scripts/package.sh deb

.PHONY: test-install
test-install: export DEPS_FOR := install
test-install: deps ## the packages on a real Debian 13 in a folder, and its kernel in the VM
	@scripts/test-install.sh $(STEPS)

.PHONY: test-kernels
test-kernels: export DEPS_FOR := install
test-kernels: deps ## the modules on other distributions, by their compilers: a table (DISTRIBUTIONS=...)
	@scripts/test-kernels.sh $(DISTRIBUTIONS)

.PHONY: clean
clean: ## remove what was built from this checkout (the cache stays)
	@rm -rf out target
	scripts/driver.sh --clean
