# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Rust in a module of a kernel that comes without it. Included by a Kbuild file, which
# sets first, relative to $(src) and $(obj):
#
#   uvm_rust_kernel   this crate's folder (src/uvm_rust/kernel)
#   uvm_rust_out      where what is built goes
#
# and then says which objects are Rust:
#
#   $(eval $(call uvm_rust_object,DIR/NAME,SOURCES))   DIR/NAME.o from DIR/NAME.rs
#
# and links $(uvm_rust_helpers) in, once for each module. With CLIPPY=1, as in the kernel's own
# build, these objects' crates are looked through by clippy each time that make is asked for them.
#
# `core` is compiled from rust-src for the kernel's flags, as an rlib with bitcode; so is
# the `kernel` crate; and a module's crate with link-time optimisation over all three.
# LTO makes local, or leaves out, all but what C calls, so nothing has to be exported
# to the module and nothing of core's can clash with another module's.

uvm_rust_dir := $(abspath $(src))/$(uvm_rust_kernel)
uvm_rust_obj := $(obj)/$(uvm_rust_out)
uvm_rust_helpers := $(uvm_rust_kernel)/c/helpers.o
RUSTC ?= rustc
# 1 for lines of source in debuggers. A backtrace of the kernel's has the functions' names
# without, and the pahole of some distributions has a line to say on each type of Rust's.
UVM_RUST_DEBUGINFO ?= 0

# Which features of rustc's are used does not depend on its channel.
export RUSTC_BOOTSTRAP := 1

uvm_rust_library := $(shell $(RUSTC) --print sysroot 2>/dev/null)/lib/rustlib/src/rust/library
# In every command, so that another compiler builds all anew.
uvm_rust_version := $(shell $(RUSTC) --version 2>/dev/null | cut -d' ' -f2-)
uvm_rust_minor := $(word 2,$(subst ., ,$(uvm_rust_version)))
uvm_rust_edition := $(or $(shell sed -n 's/^edition *= *"\(.*\)"/\1/p' $(uvm_rust_library)/core/Cargo.toml 2>/dev/null),2021)
uvm_rust_at_least = $(shell [ "$(uvm_rust_minor)" -ge $(1) ] && echo y)
uvm_rust_rustc = UVM_RUST_RUSTC='$(uvm_rust_version)' $(RUSTC)
# The flag of C's, if the kernel is built with it.
uvm_rust_c = $(filter $(1),$(KBUILD_CFLAGS))

# Before 1.98 rustc does not tell LLVM of frame pointers for the functions that LLVM itself adds,
# such as KASAN's for a module's globals.
uvm_rust_flags := --target=$(uvm_rust_obj)/target.json -Zunstable-options --sysroot=/dev/null \
	-Cpanic=abort -Copt-level=2 -Ccodegen-units=1 -Cembed-bitcode=y -Csymbol-mangling-version=v0 \
	-Crelocation-model=static -Ccode-model=kernel -Cno-redzone=y -Cforce-unwind-tables=n \
	-Zfunction-sections=n -Ztune-cpu=generic -Cdebug-assertions=n -Coverflow-checks=y \
	-Cdebuginfo=$(UVM_RUST_DEBUGINFO) -Cstrip=none \
	-Cforce-frame-pointers=$(if $(CONFIG_FRAME_POINTER),y,n) \
	$(if $(CONFIG_FRAME_POINTER),$(if $(call uvm_rust_at_least,98),,-Zllvm_module_flag=frame-pointer:u32:2:max)) \
	--remap-path-prefix=$(uvm_rust_library)/= --remap-path-prefix=$(abspath $(src))/=
# What the kernel's C is compiled with against speculation and hijacked control flow, and
# what tracing wants in front of functions.
uvm_rust_flags += \
	$(if $(call uvm_rust_c,-mfunction-return=thunk-extern),-Zfunction-return=thunk-extern) \
	$(if $(call uvm_rust_c,-fcf-protection=branch),-Zcf-protection=branch) \
	$(if $(call uvm_rust_c,-fno-jump-tables),$(if $(call uvm_rust_at_least,93),-Cjump-tables=n,-Zno-jump-tables)) \
	$(patsubst -f%,-Z%,$(call uvm_rust_c,-fpatchable-function-entry=%))
# KASAN looks at what the module's code does, and so at core's where it is inlined.
ifdef CONFIG_KASAN_GENERIC
uvm_rust_flags += -Zsanitizer=kernel-address -Zsanitizer-recover=kernel-address \
	-Cllvm-args=-asan-mapping-offset=$(CONFIG_KASAN_SHADOW_OFFSET) \
	-Cllvm-args=-asan-instrumentation-with-call-threshold=$(if $(CONFIG_KASAN_INLINE),10000,0) \
	-Cllvm-args=-asan-stack=$(if $(CONFIG_KASAN_STACK),1,0) -Cllvm-args=-asan-globals=1 \
	$(if $(CONFIG_CC_HAS_KASAN_MEMINTRINSIC_PREFIX),-Cllvm-args=-asan-kernel-mem-intrinsic-prefix=1)
endif

$(shell mkdir -p $(uvm_rust_obj))

quiet_cmd_uvm_rust_target = TARGET  $@
      cmd_uvm_rust_target = UVM_RUST_RUSTC='$(uvm_rust_version)' sh $(uvm_rust_dir)/build/target.sh $(RUSTC) "$(filter -m%,$(KBUILD_CFLAGS))" > $@

quiet_cmd_uvm_rust_layout = LAYOUT  $@
      cmd_uvm_rust_layout = awk -f $(uvm_rust_dir)/build/layout.awk $< > $@

# A crate of ours, or of the compiler's. What the compiler warns of in its own is its
# makers' matter.
quiet_cmd_uvm_rust_lib = RUSTLIB $@
      cmd_uvm_rust_lib = UVM_RUST_LAYOUT=$(abspath $(uvm_rust_obj))/layout.rs \
	$(uvm_rust_rustc) $(uvm_rust_flags) -L$(uvm_rust_obj) --crate-type rlib \
	--crate-name $(patsubst lib%.rlib,%,$(notdir $@)) --out-dir $(dir $@) \
	$(uvm_rust_lib_flags) $(uvm_rust_source)

# Run by the compiler, on the machine that builds.
quiet_cmd_uvm_rust_macros = RUSTMAC $@
      cmd_uvm_rust_macros = $(uvm_rust_rustc) --edition=2021 -O -Clinker=$(or $(HOSTCC),cc) -Cstrip=debuginfo \
	--crate-type proc-macro --extern proc_macro --crate-name kernel_macros --out-dir $(dir $@) $(uvm_rust_source)

quiet_cmd_uvm_rust_module = RUSTMOD $@
      cmd_uvm_rust_module = $(uvm_rust_rustc) -Clto=fat $(uvm_rust_module_flags)
uvm_rust_module_flags = $(uvm_rust_flags) $(RUSTFLAGS_$(uvm_rust_name).o) -L$(uvm_rust_obj) \
	--edition=2021 -Zcrate-attr=no_std --cfg MODULE --crate-type staticlib \
	--extern kernel=$(uvm_rust_obj)/libkernel.rlib \
	--crate-name $(notdir $(uvm_rust_name)) --out-dir $(dir $@) $(uvm_rust_source)

# With the kernel's own choice of lints, which its Makefile has with Rust or without; but not its
# clippy.toml, as headers come without.
quiet_cmd_uvm_rust_clippy = CLIPPY  $(uvm_rust_source)
      cmd_uvm_rust_clippy = CLIPPY_CONF_DIR=$(uvm_rust_dir)/build clippy-driver \
	$(filter -W% -A% -D%,$(rust_common_flags)) --emit=metadata $(uvm_rust_module_flags)

# Out of the archive, without the bitcode, which modpost would ask about, and looked
# through by objtool as every object of this kernel's is. objtool of Linux 6.1 takes an
# object of two files for a linked module, so the empty library's does not count as one.
quiet_cmd_uvm_rust_object = LD      $@
      cmd_uvm_rust_object = $(LD) -m elf_x86_64 -z noexecstack -r --whole-archive -o $@ $< && \
	$(OBJCOPY) -R .llvmbc -R .llvmcmd -w -N 'compiler_builtins.*' $@ $(cmd_objtool)

uvm_rust_targets := target.json layout.rs libcore.rlib libcompiler_builtins.rlib libkernel_macros.so libkernel.rlib
targets += $(addprefix $(uvm_rust_out)/,$(uvm_rust_targets)) $(uvm_rust_kernel)/build/layout.s

$(uvm_rust_obj)/target.json: $(uvm_rust_dir)/build/target.sh FORCE
	$(call if_changed,uvm_rust_target)

$(uvm_rust_obj)/layout.rs: $(obj)/$(uvm_rust_kernel)/build/layout.s FORCE
	$(call if_changed,uvm_rust_layout)

$(uvm_rust_obj)/libcore.rlib: private uvm_rust_source := $(uvm_rust_library)/core/src/lib.rs
$(uvm_rust_obj)/libcore.rlib: private uvm_rust_lib_flags := --edition=$(uvm_rust_edition) --cfg no_fp_fmt_parse --cap-lints=allow
$(uvm_rust_obj)/libcore.rlib: $(uvm_rust_obj)/target.json FORCE
	+$(call if_changed,uvm_rust_lib)

$(uvm_rust_obj)/libcompiler_builtins.rlib: private uvm_rust_source := $(uvm_rust_dir)/build/builtins.rs
$(uvm_rust_obj)/libcompiler_builtins.rlib: private uvm_rust_lib_flags := --edition=2021
$(uvm_rust_obj)/libcompiler_builtins.rlib: $(uvm_rust_dir)/build/builtins.rs $(uvm_rust_obj)/libcore.rlib FORCE
	+$(call if_changed,uvm_rust_lib)

$(uvm_rust_obj)/libkernel_macros.so: private uvm_rust_source := $(uvm_rust_dir)/macros/lib.rs
$(uvm_rust_obj)/libkernel_macros.so: $(uvm_rust_dir)/macros/lib.rs $(uvm_rust_obj)/target.json FORCE
	+$(call if_changed,uvm_rust_macros)

$(uvm_rust_obj)/libkernel.rlib: private uvm_rust_source := $(uvm_rust_dir)/lib.rs
$(uvm_rust_obj)/libkernel.rlib: private uvm_rust_lib_flags := --edition=2021 --cfg MODULE \
	--extern kernel_macros=$(uvm_rust_obj)/libkernel_macros.so
$(uvm_rust_obj)/libkernel.rlib: $(shell find $(uvm_rust_dir) -name '*.rs') $(uvm_rust_obj)/layout.rs \
		$(uvm_rust_obj)/libcompiler_builtins.rlib $(uvm_rust_obj)/libkernel_macros.so FORCE
	+$(call if_changed,uvm_rust_lib)

# $(1): the object, relative to $(obj), without .o; $(2): what its .rs uses.
define uvm_rust_object
targets += $(1).o $(uvm_rust_out)/lib$(notdir $(1)).a
$(uvm_rust_obj)/lib$(notdir $(1)).a: private uvm_rust_name := $(1)
$(uvm_rust_obj)/lib$(notdir $(1)).a: private uvm_rust_source := $$(src)/$(1).rs
$(uvm_rust_obj)/lib$(notdir $(1)).a: $$(src)/$(1).rs $(2) $(uvm_rust_obj)/libkernel.rlib FORCE
	+$$(call if_changed,uvm_rust_module)
$(obj)/$(1).o: $(uvm_rust_obj)/lib$(notdir $(1)).a FORCE
	$$(call if_changed,uvm_rust_object)

ifeq ($$(CLIPPY),1)
PHONY += $(uvm_rust_obj)/$(notdir $(1)).clippy
$(obj)/$(1).o: $(uvm_rust_obj)/$(notdir $(1)).clippy
$(uvm_rust_obj)/$(notdir $(1)).clippy: private uvm_rust_name := $(1)
$(uvm_rust_obj)/$(notdir $(1)).clippy: private uvm_rust_source := $$(src)/$(1).rs
$(uvm_rust_obj)/$(notdir $(1)).clippy: $(uvm_rust_obj)/libkernel.rlib
	+$$(call cmd,uvm_rust_clippy)
endif
endef
