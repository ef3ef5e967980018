# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Sourced by test.sh: what `make test` consists of.
# shellcheck shell=bash
. "$TOP/scripts/bugs.sh"

# make_options: the names of the options that the Makefile passes on.
make_options() { sed -n 's/^export //p' "$TOP/Makefile" | tr ' ' '\n'; }

# rustfmt_check: every file is formatted as rustfmt.toml says, in and out of the workspace. Of what it
# reads from standard input rustfmt says what it would change, and that all is well.
rustfmt_check() {
	# shellcheck disable=SC2016
	{ git ls-files '*.rs' 2>/dev/null || find src sim tests userlib -name '*.rs' -not -path '*/target/*'; } |
		xargs -P "$JOBS" -I{} sh -c 'diff=$(rustfmt --edition 2021 --check --config-path "$1" <"$2" 2>&1) && [ -z "$diff" ] ||
			{ echo "$2 is not formatted: rustfmt --edition 2021 $2"; exit 1; }' - "$TOP/rustfmt.toml" {}
}

# spelling: of every file of ours. What codespell 2.2 and 2.4 (Debian 12 and 13) take for slips are names.
spelling() {
	local names=crate,statics,fo,nd,filp,unexpect,inforce,inflight,upto,fro,busses,whats,parm,deques,activ,aline,ratatui,triggerin
	{ git ls-files 2>/dev/null || find . -type f -not -path '*/target/*' -not -path './out/*'; } |
		grep -vE '\.(svg|lock|json|csv|gz)$|^(\./)?LICENSES/|bindings\.rs$' | tr '\n' '\0' | xargs -0 codespell -L "$names"
}

# python_with MODULE: a Python that has it; Debian's packages are for its own.
python_with() {
	local p
	for p in python3 /usr/bin/python3; do
		if "$p" -c "import $1" 2>/dev/null; then echo "$p"; return 0; fi
	done
	return 1
}

# The Python package and the PyTorch importer, on the program as users build it.
python_package() { cargo build --quiet --release -p uvmsim && python3 sim/python/tests/test_uvmsim.py; }
pytorch_importer() { cargo build --quiet --release -p uvmsim && "$1" sim/python/tests/test_uvmsim_torch.py; }

# wheel_lacks: what the wheel of the user library's package needs and is not here, in words.
wheel_lacks() {
	local maturin
	if ! python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
		echo "no Python 3.9 or later with venv"
		return
	fi
	# pip builds in an environment of its own, for which it gets this from PyPI.
	maturin=$(sed -n 's/^requires = \["\(.*\)"\]$/\1/p' userlib/python/pyproject.toml)
	# shellcheck disable=SC2154  # test.sh sets $out
	timeout 60 python3 -m pip download --quiet --disable-pip-version-check --retries 0 --no-deps \
		--dest "$out/host/maturin" "$maturin" >/dev/null 2>&1 || echo "pip finds no $maturin"
}

# package_crates: packages of the Rust library and of what it needs, as crates.io would have them, which build
# without the checkout. (A lock file of crates that are not published yet there can not be.)
package_crates() {
	local dir=$out/host/crates crate
	rm -rf "$dir"
	cargo package --offline --quiet --no-verify --allow-dirty --exclude-lockfile --target-dir "$dir" \
		-p uvmsim-plan -p uvm-uapi -p uvmrust || return
	for crate in "$dir"/package/*.crate; do tar -C "$dir" -xzf "$crate" || return; done
	# Workspaces of their own, that the one around them does not take them for its members.
	for crate in "$dir"/uvm*/Cargo.toml; do printf '\n[workspace]\n' >>"$crate"; done
	cargo check --offline --quiet --lib --target-dir "$dir/target" --manifest-path "$(echo "$dir"/uvmrust-*/Cargo.toml)" \
		--config "patch.crates-io.uvm-uapi.path='$(echo "$dir"/uvm-uapi-*)'" \
		--config "patch.crates-io.uvmsim-plan.path='$(echo "$dir"/uvmsim-plan-*)'"
}

host_parts() {
	local all=(--workspace) version
	version=$(rustc --version | awk '{ print $2 }')
	if ! at_least 1.88.0 "$version"; then
		all+=(--exclude uvmrust-preload)
		skip host/preload "rustc $version has no naked functions yet: 1.88 (the rest is tested)"
		skip host/clippy "clippy $version warns of what a later one finds well"
	else
		part host/clippy cargo clippy "${all[@]}" --all-targets --quiet -- -D warnings
	fi
	part host/rustfmt rustfmt_check
	# They take some minutes; one that waits for ever would take the whole run with it.
	beside host/cargo-test timeout -k 10 2400 cargo test "${all[@]}" --no-fail-fast
	part host/scripts tests/scripts/deps.sh
	part host/inputs tests/scripts/inputs.sh
	part host/probe tests/scripts/probe.sh
	part host/uvm-rust tests/scripts/uvm-rust.sh
	part host/dkms tests/scripts/dkms.sh
	part host/prototypes tests/scripts/prototypes.sh
	part host/hook-table tests/scripts/hook-table.sh
	part host/upstream-bugs tests/scripts/upstream-bugs.sh
	part host/driver-sh tests/scripts/driver.sh
	part host/facts tests/scripts/facts.sh
	part host/base tests/scripts/base.sh
	part host/lines tests/scripts/lines.sh
	part host/prose-sh tests/scripts/prose.sh
	part host/prose scripts/prose.py
	part host/links-sh tests/scripts/links.sh
	part host/links scripts/links.py
	part host/first-policy tests/scripts/first-policy.sh
	part host/ci tests/scripts/ci.sh
	part host/pictures tests/scripts/pictures.sh
	part host/kernels tests/scripts/test-kernels.sh
	part host/bindings scripts/bindings.sh --check
	part host/masks make --silent -C tests/masks run
	part host/seam make --silent -C tests/seam run
	beside host/python python_package
	local python
	if cargo package --help 2>/dev/null | grep -q exclude-lockfile; then
		part host/crates package_crates
	else
		skip host/crates "cargo $(cargo --version | awk '{ print $2 }') packages no two crates of which one needs the other"
	fi
	if python=$(python_with torch); then
		part host/pytorch pytorch_importer "$python"
	else
		skip host/pytorch "no PyTorch (Debian: python3-torch)"
	fi
	part host/docs env RUSTDOCFLAGS="-D warnings" cargo doc "${all[@]}" --no-deps --document-private-items --quiet
	part host/test-sh scripts/test-count-test.sh
	part host/versions tests/scripts/versions.sh
	part host/test-names tests/scripts/test-names.sh
	if have shellcheck; then
		part host/shellcheck shellcheck -x scripts/*.sh tests/scripts/*.sh tests/vgpu/*.sh packaging/uvm-rust packaging/*/*.sh
	else
		skip host/shellcheck "shellcheck is not installed"
	fi
	if have codespell; then
		part host/spelling spelling
	else
		skip host/spelling "codespell is not installed"
	fi
	if have reuse; then
		part host/reuse tests/scripts/reuse.sh
	else
		skip host/reuse "reuse is not installed"
	fi
	if have cargo-deny; then
		part host/deny tests/scripts/deny.sh
	else
		skip host/deny "cargo-deny is not installed (make deny)"
	fi
	if cargo +nightly miri --version >/dev/null 2>&1; then
		part host/miri env MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test -p uvm-policy --lib -- \
			mem:: policy::discard policy::evict policy::fault policy::flash policy::mask policy::plan policy::stats
		part host/miri-library env MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test -p uvmrust --lib
		part host/miri-kernel env MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test -p uvm-kernel
	else
		skip host/miri-library "no Miri, as below"
		skip host/miri "no nightly toolchain with Miri (rustup +nightly component add miri rust-src)"
	fi
}

# The programs that run in the VM.
build_programs() {
	# The selftests' harness is the kernel's, and not in the package of its headers.
	cargo build --release --quiet -p uvm-suite -p uvm-workloads -p uvm-dnn -p uvmtop &&
		scripts/kernel.sh source >/dev/null &&
		make --silent -C tests/kselftest
}

# The VM is slower than any GPU: thrashing is only seen over a longer time.
suite=target/release
slow="UVM_PARAMS=uvm_perf_thrashing_lapse_usec=1000000"

# A fault buffer of 16 entries; see the parameters of vgpu.ko in docs/vgpu.md. There the CPU
# has all that QEMU has, five levels of page tables among it.
odd_gpu="irq=hard fault_entries=16 pma_zero=1"
# Half of the memory on a second NUMA node.
two_nodes="QEMU_OPTS=-object memory-backend-ram,id=n0,size=1536M -object memory-backend-ram,id=n1,size=1536M"
two_nodes+=" -numa node,nodeid=0,cpus=0,memdev=n0 -numa node,nodeid=1,cpus=1,memdev=n1"

# channel_sanity: upstream's use after free is a report of KASAN's, or an oops; or it does not
# show in this run. Anything else would be a bug of ours (docs/vgpu.md). If it shows, the
# modules are past unloading.
channel_sanity() {
	# shellcheck disable=SC2154
	local rc=0 log=$out/channel-sanity.console
	vm "$@" VM_UNLOAD= VM_LOG="$log" VM_TIMEOUT=1800 -- "$suite/hazards --channel-sanity" || rc=$?
	if channel_sanity_died "$log"; then
		echo "ok 1 - UVM_TEST_CHANNEL_SANITY leaves trackers of freed channels: KASAN's report, or the oops, is upstream's"
	else
		case $rc in
		0) echo "ok 1 - the use after free did not show # SKIP" ;;
		124 | 255) echo "not ok 1 - the guest died elsewhere; see $log" ;;
		*) return "$rc" ;;
		esac
	fi
	echo 1..1
}

# how_much short|long: of what one could do for ever. `make test` is to end within 40 minutes on
# two cores, and takes 37; `make test-extra` does it at length.
how_much() {
	# shellcheck disable=SC2034  # test-count.sh asks for it
	LENGTH=$1
	case $1 in
	short) times=15 rounds=6 loops=60 ops=4000 fuzz=1500 odd_rounds=2 odd_ladder='' ;;
	long) times=100 rounds=10 loops=100 ops=10000 fuzz=5000 odd_rounds=5 odd_ladder="&& $suite/ladder --full --only 'step 10'" ;;
	esac
	flash_suite="$suite/flash --bad-device \$BAD_SSD --ops 500 --fuzz $fuzz ${SEED:+--seed $SEED}"
}
how_much short

# random_parts DRIVER: the random program. The unmodified driver oopses when it
# evicts part of a block of ordinary memory, so there managed memory is
# oversubscribed, and ordinary memory is not; and it loses writes to
# read-duplicated pages (docs/fixes.md).
random_parts() {
	local d=$1 args="--ops ${OPS:-$ops} ${SEED:+--seed $SEED}"
	if [ "$d" = rust ]; then
		lane rust/random vm DRIVER=rust VIDMEM=64M VM_TIMEOUT=1800 -- "$suite/random $args"
	else
		lane "$d/random-managed" vm DRIVER="$d" VIDMEM=64M VM_TIMEOUT=1800 -- \
			"$suite/random $args --no-read-duplication --memory managed"
		lane "$d/random-no-eviction" vm DRIVER="$d" VIDMEM=64M VM_TIMEOUT=1800 -- \
			"$suite/random --ops $((${OPS:-$ops} / 10)) ${SEED:+--seed $SEED} --no-read-duplication --no-eviction"
	fi
}

# loops: the same fault storms (STORMS) under the Rust loop, the C one, and the other replay
# policies (0 replays per block, 1 per batch, 2 flushes per batch, 3 once for all).
loops() {
	local file=out/test/rust/loops.storms first="--storms ${STORMS:-$loops} ${SEED:+--seed $SEED} --record"
	vm DRIVER=rust NOLOAD=1 VIDMEM=64M VM_TIMEOUT=1800 -- "
		storms() {
			echo \"# \$1\"
			UVM_ARGS=\"\$UVM_ARGS \$1\" bash scripts/vm-load.sh rust && $suite/loops \$2 $file && bash scripts/vm-load.sh unload
		}
		storms uvm_rust_fault=1 '$first' && storms uvm_rust_fault=0 --against &&
		for policy in 0 1 3; do storms uvm_perf_fault_replay_policy=\$policy --against || exit; done"
}

# policy_names: the eviction policies that are in the tree, by their names.
policy_names() {
	find "$TOP/src/uvm_rust/policy/evict/policies" -name '*.rs' -not -name tests.rs \
		-exec sed -n 's/.*const NAME: &.static str = "\(.*\)";/\1/p' {} + | sort
}

# policies: what each eviction policy makes of a scan, and that a policy of no such name is refused
# with a line for each that there is. They are chosen when the module is loaded.
policies() {
	local names
	names=$(policy_names | paste -sd' ')
	vm DRIVER=rust NOLOAD=1 VIDMEM=64M VM_TIMEOUT=900 -- "
		policy() { UVM_ARGS=\"\$UVM_ARGS uvm_rust_evict_policy=\$1\" bash scripts/vm-load.sh rust; }
		for p in $names; do policy \$p && $suite/policy && bash scripts/vm-load.sh unload || exit; done
		if policy none 2>/dev/null; then echo -n 'not '
		else for p in $names; do dmesg | grep -qw \"uvm_rust_evict_policy: \$p\" || { echo -n 'not '; break; }; done
		fi
		echo 'ok 1 - policy: no such policy, and the log says which there are'
		echo 1..1"
}

# shares: what three quiet processes keep beside a loud one, under NVIDIA's driver, its order in ours, and `fair`.
shares() {
	vm DRIVER=rust NOLOAD=1 VIDMEM=64M VM_TIMEOUT=1500 -- "
		shares() { UVM_ARGS=\"\$UVM_ARGS \$2\" bash scripts/vm-load.sh \$1 && $suite/policy --shares && bash scripts/vm-load.sh unload; }
		shares upstream '' && shares rust uvm_rust_evict_policy=lru && shares rust uvm_rust_evict_policy=fair"
}

# panics: Rust in a module panics, and the driver beside it goes on.
panics() {
	local dir
	dir=$(scripts/driver.sh panic) && vm DRIVER=rust VIDMEM=64M VM_TIMEOUT=300 -- "tests/panic/panic.sh $dir/uvm_rust_panic.ko"
}

# A VM that does not finish says of each program what it waits for, in the kernel's words.
stuck_vm() {
	local said rc=0
	said=$(NOLOAD=1 VM_TIMEOUT=90 scripts/vm.sh 'sleep 1000' 2>&1 >/dev/null) || rc=$?
	if [ $rc = 124 ] && grep -A 9 ' task:sleep ' <<<"$said" | grep -q nanosleep; then
		printf 'ok 1 - vm: what does not finish is seen\n1..1\n'
	else
		printf 'not ok 1 - vm: what does not finish is seen\n1..1\n'
		printf '# %s\n' "the exit status is $rc" "$said"
	fi
}

# without NAME SWITCH TEST: with that mend of NVIDIA's driver switched off (docs/fixes.md), the test of
# hazards notices: it fails, or the guest does not come back. One that did not run has noticed nothing.
without() {
	local log=$out/fixes/$1.said ok="not ok" seen
	seen=$(until_seen fails "$log" vm DRIVER=rust VIDMEM=64M VM_MEM=4G VM_UNLOAD= VM_TIMEOUT=300 \
		UVM_PARAMS="uvm_rust_fix_$2=0" -- "$suite/hazards --only '$3'")
	if meets fails "$seen"; then ok=ok; fi
	printf '%s 1 - fixes: without %s, "%s" fails\n1..1\n' "$ok" "$2" "$3"
	printf '# %s\n' "what it did: $seen"
	sed 's/^/# /' "$log" | tail -n 40
}

# The mends are lost one by one: those whose bug is there on the base that is built for.
fixes_parts() {
	local bug id switch off on_bases test facts
	facts=$(scripts/base.sh "$(scripts/upstream.sh)" | paste -sd' ')
	for bug in "${bugs[@]}"; do
		IFS='|' read -r id switch _ _ off on_bases test <<<"$bug"
		# What does not show each time in the release kernel does so in the debug kernel.
		case $(wanted_of "$off" "$on_bases" "$facts") in
		fails) lane "fixes/$id" without "$id" "$switch" "$test" ;;
		sometimes) KERNEL=debug lane "fixes/$id" without "$id" "$switch" "$test" ;;
		esac
	done
}

# The top half in interrupt context, a fault buffer that is nearly always full, memory that RM
# has zeroed; and, at length, NVIDIA's long forms of the tests of memory.
odd_gpu_part() {
	lane rust/odd-gpu vm DRIVER=rust VIDMEM=128M VGPU_PARAMS="$odd_gpu" VM_CPU=max VM_TIMEOUT=1500 -- \
		"$suite/contend --rounds $odd_rounds ${SEED:+--seed $SEED} && $suite/ladder --only 'step 14' &&
		$suite/hazards --only injected && $suite/discard --only 5.7 $odd_ladder"
}

# ladder_parts DRIVER: NVIDIA's tests, in the steps that each kind of machine is for.
ladder_parts() {
	local d=$1
	lane "$d/ladder" vm DRIVER="$d" VM_TIMEOUT=1500 -- $suite/ladder
	lane "$d/ladder-volta" vm DRIVER="$d" GPU=volta VM_TIMEOUT=900 \
		UVM_PARAMS=uvm_perf_access_counter_mimc_migration_enable=1 -- \
		"$suite/ladder --only 'step 14' && $suite/ladder --only 'step 18' && $suite/ladder --only PMM_SYSMEM"
	lane "$d/ladder-two-gpus" vm DRIVER="$d" GPUS=2 VM_MEM=3G VM_CPUS=2 "$two_nodes" VM_TIMEOUT=900 -- \
		"$suite/ladder --only 'step 19' && $suite/ladder --only 'step 20'"
}

# adversarial_part DRIVER: the ladder where a seed says in which order channels and kernels run.
adversarial_part() {
	lane "$1/ladder-adversarial" vm DRIVER="$1" VGPU_ORDER=adversarial VGPU_SEED="${VGPU_SEED:-1}" VM_TIMEOUT=3000 -- $suite/ladder
}

# suite_parts DRIVER: our own tests of faults and of what goes wrong. The baseline passes them too:
# they ask for what NVIDIA's driver does. Its storms are NVIDIA's to pass; there a look will do.
suite_parts() {
	local d=$1 storms=$times vidmem=128M ours="&& $suite/discard --only 'pinned by thrashing'"
	[ "$d" = rust ] || { storms=$((times / 5)) vidmem=256M ours=''; }
	lane "$d/contend" vm DRIVER="$d" VIDMEM=64M VM_TIMEOUT=1200 -- "$suite/contend --rounds $rounds ${SEED:+--seed $SEED}"
	random_parts "$d"
	lane "$d/storms" vm DRIVER="$d" VIDMEM=64M VM_TIMEOUT=1800 -- "$suite/storms --times $storms"
	lane "$d/hazards" vm DRIVER="$d" VIDMEM=64M VM_TIMEOUT=900 -- "$suite/hazards --fuzz $fuzz"
	lane "$d/thrashing" vm DRIVER="$d" VIDMEM=$vidmem "$slow" VM_TIMEOUT=600 -- "$suite/ladder --only 'step 16' $ours"
}

# The demo, on the kernel of the distribution: Rust without CONFIG_RUST, and modules loaded as they are
# on a machine with a GPU.
demo_part() {
	local on
	on=$(scripts/stock.sh --default)
	KERNEL=${KERNEL:-$on} lane demo scripts/demo.sh
}

# demo_ran LOG: the same was run by itself (make demo) with this result, and need not run again.
demo_ran() { remember demo "$1" scripts/demo.sh; }

vm_parts() {
	local d
	part build/kernel scripts/kernel.sh "${KERNEL:-release}"
	part build/modules list_built upstream rust vgpu
	part build/clippy scripts/driver.sh clippy
	part build/programs build_programs
	# Long ones first: what is last should not run alone for long.
	flash_parts
	demo_part
	for d in rust upstream; do ladder_parts $d; done
	suite_parts rust
	odd_gpu_part
	lane rust/ladder-ampere vm DRIVER=rust GPU=ampere VM_TIMEOUT=900 -- "$suite/ladder --only 'step 7' && $suite/ladder --only 'step 14'"
	lane rust/workloads vm DRIVER=rust VIDMEM=200M VM_TIMEOUT=900 -- "$suite/workloads --only fir --times 2"
	lane rust/loops loops
	lane rust/policies policies
	lane rust/shares shares
	lane rust/panic panics
	selftest_parts
	lane rust/prefetch vm DRIVER=rust VIDMEM=64M VM_TIMEOUT=900 UVM_PARAMS="$prefetch_on" -- "$prefetch_suite"
	# Without pre-eviction, so that sooner or later all that is there is expected.
	lane rust/together vm DRIVER=rust VIDMEM=64M VM_TIMEOUT=600 UVM_PARAMS=uvm_rust_prefetch=1 -- "$suite/policy --together"
}

# `make kselftest`: the selftests in C, and a test for each sentence on discard
# (docs/testing.md says which), with one GPU and with two.
selftest_parts() {
	lane rust/kselftest vm DRIVER=rust VIDMEM=64M VM_TIMEOUT=900 -- make --silent -C tests/kselftest run
	local limits="uvm_rust_prefetch_memory=1 uvm_rust_stats_public=1 uvm_rust_flash=1"
	lane rust/limits vm DRIVER=rust VIDMEM=64M UVM_PARAMS="$limits" VM_TIMEOUT=900 -- \
		"out/kselftest/uvm_announce && out/kselftest/uvm_privacy && out/kselftest/uvm_calls"
	# The driver does nothing afterwards, but goes.
	lane rust/fatal vm DRIVER=rust VIDMEM=64M -- out/kselftest/uvm_fatal
	lane rust/discard vm DRIVER=rust VIDMEM=128M VM_TIMEOUT=1500 -- $suite/discard
	lane rust/discard-two-gpus vm DRIVER=rust GPUS=2 VIDMEM=128M VM_TIMEOUT=1800 -- "out/kselftest/uvm_fdinfo && $suite/discard"
	lane rust/discard-c-lists vm DRIVER=rust VIDMEM=128M UVM_PARAMS=uvm_rust_evict=0 VM_TIMEOUT=900 -- \
		"$suite/discard --only 5.3 && $suite/discard --only 5.7"
	lane rust/discard-leaks vm DRIVER=rust UVM_PARAMS=uvm_rust_test_unprepared=1 -- "$suite/discard --leaks"
	lane rust/library vm DRIVER=rust VIDMEM=64M -- $suite/library
	# There it says that it can not, in C as in Rust.
	lane upstream/library vm DRIVER=upstream VIDMEM=64M -- "$suite/library && out/kselftest/uvm_library"
}

# What a process may announce, and what moves in an order that no one can predict.
prefetch_on="uvm_rust_prefetch=1 uvm_rust_preevict=4"
prefetch_suite="out/kselftest/uvm_announce && target/release/uvm-dnn run deepum random-order"

# The SSD tier, on the devices of ssd.sh: the suite, and the programs of `make ssd-demo`.
flash_part() { lane rust/flash env VM_TIMEOUT=1500 scripts/ssd.sh "$flash_suite"; }
flash_parts() {
	flash_part
	lane rust/flash-demo env VM_TIMEOUT=1500 scripts/ssd.sh \
		"$suite/flash --demo out/ssd-short.json --ops 300 ${SEED:+--seed $SEED}"
	lane rust/plans plans
}
# A program that uvmrun records, and runs with its plan: `make record-demo`.
record_part() {
	local version
	version=$(rustc --version | awk '{ print $2 }')
	if at_least 1.88.0 "$version"; then lane rust/record scripts/record-demo.sh
	else skip rust/record "rustc $version has no naked functions yet, of which the preload is made: 1.88"
	fi
}
plans() { rm -f out/plans.json && VM_TIMEOUT=1500 scripts/plans.sh out/plans.json bert-base; }

# What make test leaves out: our own tests on the unmodified driver, and on ours without each mend of
# it; the user library without each of seven fixes, which the random
# programs must notice; upstream's use after free, which ends differently from run to run;
# NVIDIA's long forms of all its tests; our own at length; `make record-demo`; and the versions
# besides ours.
extra_parts() {
	local d
	versions_parts
	# A release build of its own.
	local lacks=''
	if wanted host/wheel; then lacks=$(wheel_lacks); fi
	if [ -n "$lacks" ]; then skip host/wheel "$lacks"; else part host/wheel scripts/wheel.sh uvmrust; fi
	part extra/fixes-taken-out cargo test -p uvmrust-random --release --test random -- \
		--ignored --exact each_fix_taken_out_is_found --nocapture
	part build/modules scripts/driver.sh
	part build/debug-kernel scripts/kernel.sh debug
	part build/debug-modules env KERNEL=debug scripts/driver.sh upstream vgpu
	part build/programs build_programs
	lane vm/stuck stuck_vm
	fixes_parts
	part upstream/channel-sanity channel_sanity DRIVER=upstream KERNEL=debug VM_MEM=4G
	how_much long
	for d in rust upstream; do suite_parts $d; done
	flash_part
	odd_gpu_part
	record_part
	lane rust/ladder-full vm DRIVER=rust VM_TIMEOUT=6000 -- "$suite/ladder --full"
	for d in rust upstream; do adversarial_part $d; done
}

# The same under a kernel that looks for what goes wrong; slower by several times.
debug_parts() {
	local k=KERNEL=debug
	how_much long
	part build/debug-kernel scripts/kernel.sh debug
	KERNEL=debug part build/debug-modules list_built upstream rust vgpu
	part build/programs build_programs
	# The longest first. What is left when the modules are gone, kmemleak finds.
	local then_kmemleak="bash scripts/vm-load.sh unload && bash scripts/vm-kmemleak.sh"
	lane debug/storms vm $k VIDMEM=64M VM_MEM=4G VM_TIMEOUT=6000 -- "$suite/storms --times 30 && bash scripts/vm-kmemleak.sh"
	# kmemleak takes most of the time, and finds nothing unless it is asked to scan: the long runs
	# are without it, short ones with it.
	local no_kmemleak=VM_KOPTS=kmemleak=off
	lane debug/random vm $k $no_kmemleak VIDMEM=64M VM_MEM=4G VM_TIMEOUT=14000 -- \
		"$suite/random --ops ${OPS:-100000} ${SEED:+--seed $SEED}"
	lane debug/random-kmemleak vm $k VIDMEM=64M VM_MEM=4G VM_TIMEOUT=3000 -- \
		"$suite/random --ops 2000 ${SEED:+--seed $SEED} && $then_kmemleak"
	lane debug/hazards vm $k $no_kmemleak VIDMEM=64M VM_MEM=4G VM_TIMEOUT=6000 -- $suite/hazards
	# What stops half-way; the other tests of what is held are about time, which kmemleak takes.
	lane debug/hazards-kmemleak vm $k VIDMEM=64M VM_MEM=4G VM_TIMEOUT=3000 -- \
		"$suite/hazards --only 'in vain' && $suite/hazards --only fails && $suite/hazards --only stray && $then_kmemleak"
	lane debug/contend vm $k $no_kmemleak VIDMEM=64M VM_MEM=4G VM_TIMEOUT=6000 -- \
		"$suite/contend --rounds 10 ${SEED:+--seed $SEED}"
	lane debug/ladder vm $k $no_kmemleak VIDMEM=64M VM_MEM=4G VM_TIMEOUT=4000 -- $suite/ladder
	lane debug/discard vm $k $no_kmemleak VIDMEM=128M VM_MEM=4G VM_TIMEOUT=4000 -- $suite/discard
	lane debug/prefetch vm $k VIDMEM=64M VM_MEM=4G VM_TIMEOUT=3000 UVM_PARAMS="$prefetch_on" -- "$prefetch_suite"
	lane debug/flash env $k $no_kmemleak VM_MEM=4G VM_TIMEOUT=4000 scripts/ssd.sh "$flash_suite"
	lane debug/flash-kmemleak env $k VM_MEM=4G VM_TIMEOUT=3000 scripts/ssd.sh \
		"$suite/flash --only 'random program' --ops 300 ${SEED:+--seed $SEED} && $then_kmemleak"
}

# given_trees: the trees in UVM_SRC, one a line. Here, and only here, there may be several, with
# spaces or colons between them.
given_trees() {
	if [ -d "${UVM_SRC:-}" ]; then echo "$UVM_SRC"; return; fi
	tr -s ' :' '\n' <<<"${UVM_SRC:-}" | sed '/^$/d'
}

# version_of TREE: what its part is called: its version, if it says one that the seam knows.
version_of() {
	local tree
	tree=$(UVM_SRC=$1 scripts/upstream.sh 2>/dev/null) || { echo given; return; }
	. src/uvm_rust/kernel/build/kbuild.sh
	driver_version "$tree"
}

# Every upstream version that the seam knows is hooked and built, and each tree in UVM_SRC. Whether
# the hooks fit is seen first: nothing is compiled for that. Of the trees the unmodified driver is
# built and run, too, on a software GPU with that version's interface, and then ours, where all of it is built.
versions_parts() {
	local v trees
	part versions/hooks tests/scripts/hooks.sh 535 550 555
	part build/kernel scripts/kernel.sh
	for v in 535 550 555; do
		part versions/$v env -u UVM_SRC UVM_VERSION=$v scripts/driver.sh rust
	done
	mapfile -t trees < <(given_trees)
	for v in "${trees[@]}"; do ours_on "$v"; done
	if [ ${#trees[@]} = 0 ]; then
		skip versions/given "no UVM_SRC: point it to open-gpu-kernel-modules trees"
		return
	fi
	part versions/calls cargo test --quiet -p vgpu-client --test layout
	part build/programs build_programs
	for v in "${trees[@]}"; do base_parts "$v"; done
}

# `make test-versions` also asks each release that tests/release-tags names, where git has them, and builds ours from those at
# which a fact turns.
tags_parts() {
	local tag why
	if [ -z "${listing:-}" ] && ! why=$(scripts/versions.sh source 2>&1 >/dev/null); then
		skip versions/tags "$(tail -n 1 <<<"${why#*error: }")"
		return
	fi
	part versions/tags scripts/versions.sh hooks
	for tag in $(scripts/versions.sh flips); do part "versions/tags/$tag" build_tag "$tag"; done
}

# build_tag TAG: all of ours is built from that release, without a warning.
build_tag() {
	local tree dir
	scripts/versions.sh note "$1" -
	tree=$(scripts/versions.sh tree "$1") && dir=$(UVM_SRC=$tree UVM_RUST_WHOLE=1 scripts/driver.sh rust) &&
		scripts/versions.sh note "$1" "$dir.log"
}

# ours_on TREE: it is built with our Rust, where the seam knows it.
ours_on() {
	local tree name why
	name=versions/$(version_of "$1")
	if tree=$(UVM_SRC=$1 scripts/upstream.sh 2>/dev/null) && ! why=$(scripts/seam.sh --knows "$tree" 2>&1); then
		skip "$name" "${why#error: }"
	else
		part "$name" env UVM_SRC="$1" scripts/driver.sh rust
	fi
}

# base_parts TREE: the unmodified driver on the software GPU: NVIDIA's tests say whether that has
# the interface which this version asks for.
base_parts() {
	local name
	name=versions/$(version_of "$1")
	part "$name/modules" env UVM_SRC="$1" scripts/driver.sh upstream vgpu
	lane "$name/ladder" vm UVM_SRC="$1" DRIVER=upstream VM_TIMEOUT=1500 -- $suite/ladder
	lane "$name/ladder-two-gpus" vm UVM_SRC="$1" DRIVER=upstream GPUS=2 VM_MEM=3G VM_CPUS=2 "$two_nodes" VM_TIMEOUT=900 -- \
		"$suite/ladder --only 'step 19' && $suite/ladder --only 'step 20'"
	ours_runs_on "$1" || return 0
	lane "$name/ours/ladder" vm UVM_SRC="$1" DRIVER=rust VM_TIMEOUT=1500 -- $suite/ladder
	lane "$name/ours/discard" vm UVM_SRC="$1" DRIVER=rust VM_TIMEOUT=1500 -- $suite/discard
}

# ours_runs_on TREE: is it a driver into which all of ours is built, not one that discards by itself?
ours_runs_on() {
	local tree facts
	tree=$(UVM_SRC=$1 scripts/upstream.sh 2>/dev/null) && scripts/seam.sh --knows "$tree" 2>/dev/null &&
		facts=$(scripts/base.sh "$tree" 2>/dev/null) && ! grep -qx native_discard <<<"$facts"
}
