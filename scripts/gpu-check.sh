#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Check the user library on a real GPU, with the driver that is there: one page of TAP on
# standard output, and what each part said in a folder. No module is loaded. Takes at most
# 256 MiB of managed memory.
#
#   gpu-check.sh                 build what is needed (cargo, cc), and run all parts
#   gpu-check.sh --build DIR     build only, into DIR: a kit that needs no cargo
#   gpu-check.sh --kit DIR       run all parts of a kit
#   gpu-check.sh ... --stub      on the stub of CUDA, to test this script
#   gpu-check.sh ... --only RE   only the parts whose names match
#
# Logs go to $OUT, or out/gpu-check; $OUT/logs.tar.gz has them all. A part has PART_S
# seconds (70), all of them LIMIT_S (420), the random programs RANDOM_S (60), which are those of
# RANDOM_SEED (1); what is missing is skipped, and a part that fails stops nothing. PYTHON names a Python that has PyTorch.
# WITH_BROKEN=1 adds to a kit the random programs with a fix taken out, to see what it fixes.
set -u

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PART_S=${PART_S:-70}
LIMIT_S=${LIMIT_S:-420}
RANDOM_S=${RANDOM_S:-60}
RANDOM_CUDA_S=${RANDOM_CUDA_S:-15}
RANDOM_SEED=${RANDOM_SEED:-1}
RANDOM_AGAIN=${RANDOM_AGAIN:-50}
PYTHON=${PYTHON:-python3}
CARGO=${CARGO:-cargo}

die() { printf 'error: %s\n' "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# --- building ---

# test_program CRATE: the path of the test executable "gpu" of a crate.
test_program() {
	"$CARGO" test --release --no-run --message-format=json -p "$1" --test gpu |
		sed -n 's/.*"name":"gpu".*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
}

build() {
	local kit=$1 target lib name program
	cd "$TOP" || exit 1
	have "$CARGO" || die "cargo is not installed; rustup.rs installs it"
	have cc || die "there is no C compiler"
	for name in bin lib tests python source stub; do rm -rf "${kit:?}/${name:?}"; done
	rm -f "$kit"/uvmrust-*.whl
	mkdir -p "$kit/bin" "$kit/lib" "$kit/tests" "$kit/python/uvmrust" "$kit/stub"
	kit=$(cd "$kit" && pwd)
	target=${CARGO_TARGET_DIR:-$TOP/target}/release
	"$CARGO" build --release -p uvmrun -p uvmtop -p uvmrust-preload -p uvmrust-torch -p uvmrust-python \
		-p uvmsim -p uvmrust-random || die "cargo build"
	make --silent -C userlib OUT="$kit/lib" "$kit/lib/libuvmrust.so.0" || die "libuvmrust"
	rm -f "$kit/lib/libuvmrust.a" "$kit/lib/libuvmrust.so"
	# A copy, since a link may not travel: only the linker looks for it.
	cp "$kit/lib/libuvmrust.so.0" "$kit/lib/libuvmrust.so"
	if [ "${WITH_BROKEN:-0}" = 1 ]; then
		RUSTFLAGS='--cfg broken="7"' "$CARGO" build --release -p uvmrust-random --target-dir "${target%/*}/broken-7" ||
			die "cargo build, with a fix taken out"
		cp "${target%/*}/broken-7/release/uvmrust-random" "$kit/bin/uvmrust-random-broken-7"
	fi
	cp "$target/uvmrun" "$target/uvmtop" "$target/uvmsim" "$target/uvmrust-random" "$kit/bin/"
	for lib in preload torch; do cp "$target/libuvmrust_$lib.so" "$kit/lib/"; done
	for name in uvmrust uvmrust-preload; do
		program=$(test_program "$name") || die "the test of $name"
		cp "$program" "$kit/tests/$name-gpu" || die "the test of $name"
	done
	for name in native_program order_program link_program launch_program register_program gpu_program under_program; do
		cc -std=gnu11 -O2 -g0 -o "$kit/tests/$name" "userlib/tests/$name.c" -ldl -lpthread || die "$name"
	done
	cc -std=gnu11 -O2 -g0 -o "$kit/tests/cost_program" userlib/tests/cost_program.c -Iuserlib/c/include -L"$kit/lib" \
		-luvmrust -ldl || die "cost_program"
	cc -std=gnu11 -O2 -g0 -shared -fPIC -fvisibility=hidden -o "$kit/lib/libgpu_kernels.so" \
		userlib/tests/gpu_kernels.c -ldl || die "gpu_kernels"
	cc -std=gnu11 -O2 -g0 -shared -fPIC -fvisibility=hidden -Iinclude/uapi -o "$kit/lib/libgpu_announce.so" \
		userlib/tests/gpu_announce.c || die "gpu_announce"
	[ ! -x out/kselftest/uvm_library ] || cp out/kselftest/uvm_library "$kit/tests/"
	cp -R userlib/python/uvmrust/. "$kit/python/uvmrust/"
	find "$kit/python" -name __pycache__ -prune -exec rm -rf {} +
	cp "$target/libuvmrust_python.so" "$kit/python/uvmrust/_native.abi3.so"
	# Not one of older sources.
	for name in out/wheel/uvmrust-*.whl; do
		[ ! -f "$name" ] || [ -n "$(find userlib/{python,uvmrust,torch}/src sim/plan/src userlib/python/uvmrust -newer "$name" -type f -print -quit)" ] ||
			cp "$name" "$kit/"
	done
	cc -O1 -shared -fPIC -fvisibility=hidden -Wl,-Bsymbolic,-soname,libcuda.so.1 -DSTUB -Iinclude/uapi \
		-o "$kit/stub/libcuda.so.1" userlib/tests/stub/*.c -lpthread || die "the stub"
	for name in userlib/tests userlib/examples userlib/c/include include/uapi; do
		mkdir -p "$kit/source/$name"
		cp -R "$name/." "$kit/source/$name/"
	done
	mkdir -p "$kit/source/docs"
	cp docs/discard-guide.md "$kit/source/docs/"
	find "$kit" -type f \( -name '*.so' -o -name '*.so.*' -o -path "$kit/bin/*" -o -path "$kit/tests/*" \) \
		-exec strip --strip-unneeded {} +
	cp "${BASH_SOURCE[0]}" "$kit/gpu-check.sh"
	printf 'a kit of %s in %s\n' "$(du -sh "$kit" | cut -f1)" "$kit" >&2
}

# --- running ---

count=0 failed=0 skipped=0 results=''

# result LINE: a line of TAP, also for the summary at the end.
result() {
	count=$((count + 1))
	local line=${1/ - / $count - }
	printf '%s\n' "$line"
	results+=$line$'\n'
}

skip() {
	wanted "$1" || return 0
	skipped=$((skipped + 1))
	result "ok - $1 # SKIP $2"
}

wanted() { [[ $1 =~ $ONLY ]]; }

# part NAME STATUS COMMAND...: runs a part; it holds if it ends with one of these statuses (0,1).
# With 77 it says that it could not run.
part() {
	local name=$1 statuses=$2 log=$OUT/$1.log began=$SECONDS status limit
	shift 2
	wanted "$name" || return 0
	if [ "$SECONDS" -ge "$LIMIT_S" ]; then
		skip "$name" "$LIMIT_S seconds are over"
		return
	fi
	printf '+ %s\n' "$*" >"$log"
	# timeout runs commands, and some of the parts are functions of this script's.
	if [ "$(type -t "$1")" = function ]; then set -- bash -c '"$@"' gpu-check "$@"; fi
	limit=$((LIMIT_S + 5 - SECONDS))
	timeout -k 5 $((limit < PART_S ? limit : PART_S)) "$@" >>"$log" 2>&1 </dev/null
	status=$?
	printf '+ status %s, %s s\n' "$status" $((SECONDS - began)) >>"$log"
	if [ "$status" = 77 ]; then
		skip "$name" "$(tail -n 2 "$log" | head -n 1)"
	elif [[ ,$statuses, == *,$status,* ]]; then
		result "ok - $name # $((SECONDS - began)) s"
	else
		failed=$((failed + 1))
		result "not ok - $name # status $status, $((SECONDS - began)) s"
		# What holds is said by far more lines than what does not.
		{ grep -aE '^not ok|^not so|WRONG|rror' "$log"; tail -n 6 "$log"; } | tail -n 25 | cut -c1-300 | sed 's/^/    # /'
	fi
	return 0
}

# python_part NAME COMMAND...: one that asks Python whether what it got is right.
python_part() {
	local name=$1
	shift
	if have "$PYTHON"; then part "$name" 0 "$@"; else skip "$name" "there is no $PYTHON"; fi
}

# facts NAME RE [LINES]: what of a part's log belongs on the page.
facts() {
	wanted "$1" && [ -f "$OUT/$1.log" ] && grep -av '^+ ' "$OUT/$1.log" | grep -aE "$2" | head -n "${3:-20}" | cut -c1-300 | sed 's/^/    # /'
	return 0
}

about_the_machine() {
	uname -a
	nvidia-smi 2>&1
	cat /proc/driver/nvidia/version 2>&1
	grep -H . /sys/module/nvidia_uvm/parameters/* 2>/dev/null
	ls -l /dev/nvidia* /proc/driver/nvidia-uvm /sys/kernel/debug/nvidia-uvm 2>&1
	return 0
}

# while_busy COMMAND...: runs it while a program moves memory to and fro.
while_busy() {
	local busy status
	"$KIT/tests/native_program" --busy 12 &
	busy=$!
	sleep 2
	"$@"
	status=$?
	kill "$busy" 2>/dev/null
	wait "$busy" 2>/dev/null
	return $status
}

tools() {
	part machine 0 about_the_machine
	facts machine 'NVIDIA-SMI|uvm_' 6
	# On the stub there is no driver.
	part check "$([ "$STUB" = 1 ] && echo 2 || echo 0,1)" "$KIT/bin/uvmrun" --library "$KIT/lib/libuvmrust_preload.so" --check
	facts check '.' 30
	python_part check-json as_json "$KIT/bin/uvmrun" --check --json
	part selftest 0 selftest
	facts selftest '.' 20
	part native 0 "$KIT/tests/native_program"
	facts native '^fact - (.*of [0-9]+ reads|lazily|[^,]*$)|^fact - (of|a memset|cuMem.*MiB)|not as said' 48
	part order 0 "$KIT/tests/order_program"
	facts order '^fact|^not ok|^[0-9]' 40
	part link 0 "$KIT/tests/link_program"
	facts link '^fact|^ok|^not ok|^[0-9]' 60
	part cost 0 "$KIT/tests/cost_program"
	facts cost '^fact|^not ok' 50
	launches
	under
	part register 0 "$KIT/tests/register_program"
	facts register '.' 8
	part top 0 while_busy "$KIT/bin/uvmtop" --once --interval 2
	facts top '.' 24
	part top-tools 0 while_busy "$KIT/bin/uvmtop" --tools --once --interval 2
	facts top-tools '.' 24
	python_part top-json while_busy as_json "$KIT/bin/uvmtop" --once --json --interval 2
	python_part top-listen while_busy scraped
	facts top-listen '^uvm_|samples' 14
	part test-uvmrust 0 "$KIT/tests/uvmrust-gpu" --nocapture
	facts test-uvmrust 'backend|^skipped' 3
	if [ "$STUB" = 1 ]; then skip test-preload "the stub compiles no kernels"
	else part test-preload 0 "$KIT/tests/uvmrust-preload-gpu" --nocapture; fi
	facts test-preload '^managed|^skipped' 4
	if [ -x "$KIT/tests/uvm_library" ]; then part uvm_library 0,4 "$KIT/tests/uvm_library"
	else skip uvm_library "it is not built (make kselftest)"; fi
	facts uvm_library '^# Totals|SKIP' 5
}

# What a launch costs by itself, under the preload, and recorded.
launches() {
	local run=("$KIT/bin/uvmrun" --library "$KIT/lib/libuvmrust_preload.so" --no-managed --no-announce)
	part launch 0 "$KIT/tests/launch_program"
	facts launch '^fact' 1
	# An announcement is a host function and a call to the driver, here to one that takes no such call.
	part launch-host 0 "$KIT/tests/launch_program" --host
	facts launch-host '^fact' 1
	part launch-announced 0 announced 0 "$KIT/tests/launch_program"
	facts launch-announced '^fact' 2
	part launch-joined 0 announced 400 "$KIT/tests/launch_program"
	facts launch-joined '^fact' 2
	part launch-managed 0 "$KIT/bin/uvmrun" --library "$KIT/lib/libuvmrust_preload.so" -- "$KIT/tests/launch_program"
	facts launch-managed '^fact' 1
	part launch-uvmrun 0 "${run[@]}" -- "$KIT/tests/launch_program"
	facts launch-uvmrun '^fact' 1
	part launch-record 0 "${run[@]}" --record "$TMP/launch.uvmtrace" -- "$KIT/tests/launch_program"
	facts launch-record '^fact|uvmrun:' 2
}

# announced EVERY COMMAND...: under the preload, as on a driver that takes execution IDs.
announced() {
	local every=$1
	shift
	env UVMRUST_ANNOUNCE_EVERY="$every" LD_PRELOAD="$KIT/lib/libgpu_announce.so${LD_PRELOAD:+:$LD_PRELOAD}" \
		"$KIT/bin/uvmrun" --library "$KIT/lib/libuvmrust_preload.so" -- "$@"
}

# Pools, captures, the program's own mappings, cuMemGetInfo and fork: as they are, and under the preload.
under() {
	local run=("$KIT/bin/uvmrun" --library "$KIT/lib/libuvmrust_preload.so") program=$KIT/tests/under_program
	part under-nothing 0 "$program" plain
	facts under-nothing '^fact' 2
	part under-uvmrun 0 "${run[@]}" -- "$program" managed
	facts under-uvmrun '^fact' 2
	part under-meminfo 0 env UVMRUST_MEMINFO=managed "${run[@]}" -- "$program" managed host
	facts under-meminfo '^fact' 2
}

# What Prometheus would get of uvmtop.
scraped() {
	local port=$((20000 + RANDOM % 20000)) server status
	"$KIT/bin/uvmtop" --listen "$port" &
	server=$!
	sleep 3
	"$PYTHON" -c '
import re, sys, urllib.request
answer = urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/metrics", timeout=10)
text = answer.read().decode()
print(answer.headers["Content-Type"])
print(text)
lines = [line for line in text.splitlines() if not line.startswith("#")]
wrong = [line for line in lines if not re.fullmatch(r"[a-z_]+(\{.*\})? [0-9.eE+-]+", line)]
print(f"{len(lines)} samples, {len(wrong)} that are none: {wrong[:3]}")
sys.exit(not lines or bool(wrong))' "$port"
	status=$?
	kill "$server"
	wait "$server" 2>/dev/null
	return $status
}

# Where nobody discards, nothing of discard is right or wrong.
selftest() {
	local status
	"$KIT/bin/uvmrun" --selftest
	status=$?
	return $((status == 2 ? 77 : status))
}

# as_json COMMAND...: whether what it prints is JSON; the status of --check may be 1.
as_json() {
	"$@" >"$TMP/json"
	cat "$TMP/json"
	"$PYTHON" -c 'import json, sys; json.load(open(sys.argv[1]))' "$TMP/json"
}

example() {
	local source=$KIT/source/userlib out=$TMP/example
	case $1 in
	which) cc "$source/examples/which.c" -I"$source/c/include" -L"$KIT/lib" -luvmrust -ldl -o "$out" && "$out" ;;
	scratch)
		nvcc "$source/examples/scratch.cu" -I"$source/c/include" -L"$KIT/lib" -luvmrust -o "$out" &&
			"$out" 16 4 0 && "$out" 16 4 1
		;;
	esac
}

examples() {
	if have cc; then part which 0 example which; else skip which "there is no C compiler"; fi
	facts which '^discard' 1
	if have nvcc; then part scratch 0 example scratch; else skip scratch "there is no nvcc"; fi
	facts scratch ' s$|^discard|right' 6
}

# plan TRACE PLAN: with less memory than the program needs, as little as goes: the kernels that
# need more at once than that are named, with their needs.
plan() {
	local mib=32 said need
	while [ "$mib" -lt 4096 ]; do
		echo "--gpu-mem ${mib}MiB"
		said=$("$KIT/bin/uvmsim" plan --trace "$1" --gpu-mem "${mib}MiB" --budget 5 -o "$2" 2>&1) && {
			echo "$said"
			return 0
		}
		echo "$said"
		need=$(sed -n 's/.* needs \([0-9.]*\) GiB at once.*/\1/p' <<<"$said" | head -n 1)
		# It is told in hundredths, rounded.
		need=$(awk -v gib="${need:-0}" 'BEGIN { printf "%d", gib * 1024 + 8 }')
		mib=$((need > mib ? need : mib * 5 / 4))
	done
	return 1
}

# Without PyTorch's cache each tensor is an allocation of CUDA's, which a record can tell apart.
recorded_and_planned() {
	local train=$1
	part torch-uncached 0 env PYTORCH_NO_CUDA_MEMORY_CACHING=1 "$PYTHON" "$train" --only convnet --expect "$TMP/plain" \
		--write "$TMP/uncached"
	facts torch-uncached 'losses|median' 4
	# What follows says how many times as long as that a step takes.
	part torch-record-unmanaged 0 env PYTORCH_NO_CUDA_MEMORY_CACHING=1 "${RUN[@]}" --no-managed --managed-min 64K \
		--record "$OUT/unmanaged.uvmtrace" -- "$PYTHON" "$train" --only convnet --expect "$TMP/uncached"
	facts torch-record-unmanaged 'uvmrun:|losses|median' 4
	# What the record costs beside what it needs: tensors that are managed memory of their own.
	part torch-uncached-managed 0 env PYTORCH_NO_CUDA_MEMORY_CACHING=1 "${RUN[@]}" --managed-min 64K -- \
		"$PYTHON" "$train" --only convnet --expect "$TMP/uncached"
	facts torch-uncached-managed 'losses|median' 4
	part torch-record 0 env PYTORCH_NO_CUDA_MEMORY_CACHING=1 "${RUN[@]}" --managed-min 64K --record "$OUT/train.uvmtrace" -- \
		"$PYTHON" "$train" --only convnet --expect "$TMP/uncached"
	facts torch-record 'uvmrun:|losses|median' 6
	planned unmanaged "-unmanaged" "$train"
	planned train "" "$train"
}

# planned TRACE SUFFIX TRAIN: a plan of a trace, and the training that follows it, in managed memory.
planned() {
	if [ ! -s "$OUT/$1.uvmtrace" ]; then
		skip "torch-plan$2" "there is no trace"
		return
	fi
	part "plan$2" 0 plan "$OUT/$1.uvmtrace" "$OUT/$1.uvmplan"
	facts "plan$2" '.' 12
	if [ ! -s "$OUT/$1.uvmplan" ]; then
		skip "torch-plan$2" "there is no plan"
		return
	fi
	part "torch-plan$2" 0 env PYTORCH_NO_CUDA_MEMORY_CACHING=1 "${RUN[@]}" --managed-min 64K --plan "$OUT/$1.uvmplan" -- \
		"$PYTHON" "$3" --only convnet --expect "$TMP/plain"
	facts "torch-plan$2" 'uvmrust|uvmrun|losses|median' 8
}

# losses NAME COMMAND...: a training of a network by a script that knows nothing, under a command. Its
# losses are those of the first time.
losses() {
	local name=$1 first=$TMP/$1.losses
	shift
	"$@" "$PYTHON" "$KIT/source/userlib/tests/train.py" "$name" 6 >"$TMP/losses" || return
	[ -f "$first" ] || cp "$TMP/losses" "$first"
	"$PYTHON" -c '
import sys
now, first = ([float.fromhex(line.split()[1]) for line in open(path)] for path in sys.argv[1:])
apart = max(abs(a - b) / abs(b) for a, b in zip(now, first, strict=True))
print("losses", [round(one, 6) for one in now], f"apart by {apart:.1e} at most" if apart else "equal, bit for bit")
sys.exit(len(now) != 6 or apart > 1e-4)' "$TMP/losses" "$first"
}

# A transformer and a ResNet: as they are, recorded, and with the plan of that.
unmodified() {
	local name files uncached=(env PYTORCH_NO_CUDA_MEMORY_CACHING=1)
	for name in transformer resnet; do
		files=$OUT/$name
		part "train-$name" 0 losses "$name" env
		# Where this is another, what follows may be.
		part "train-$name-again" 0 losses "$name" "${uncached[@]}"
		facts "train-$name-again" 'losses' 1
		part "train-$name-record" 0 losses "$name" "${uncached[@]}" "${RUN[@]}" --no-managed --managed-min 64K \
			--record "$files.uvmtrace" --
		facts "train-$name-record" 'uvmrun:|losses' 3
		part "train-$name-make" 0 plan "$files.uvmtrace" "$files.uvmplan"
		facts "train-$name-make" 'gpu-mem|best' 6
		part "train-$name-plan" 0 losses "$name" "${uncached[@]}" "${RUN[@]}" --managed-min 64K --plan "$files.uvmplan" --
		facts "train-$name-plan" 'uvmrust|uvmrun:|losses' 4
	done
}

pytorch() {
	local tests=$KIT/source/userlib/tests train
	train=$tests/gpu_train.py
	if ! "$PYTHON" -c 'import torch, sys; sys.exit(not torch.version.cuda)' 2>/dev/null; then
		skip torch "$PYTHON has no PyTorch for CUDA"
		return
	fi
	RUN=("$KIT/bin/uvmrun" --library "$KIT/lib/libuvmrust_preload.so")
	part torch-plain 0 "$PYTHON" "$train" --write "$TMP/plain"
	facts torch-plain 'loss|memory|PyTorch' 6
	part torch-package 0 "$PYTHON" "$tests/gpu_torch.py"
	facts torch-package '^backend|^reserved' 4
	packages "$tests"
	part torch-allocator 0 "$PYTHON" "$train" --allocator --expect "$TMP/plain"
	facts torch-allocator 'loss|memory' 6
	part torch-short 0 "$PYTHON" "$train" --allocator --budget 32 --expect "$TMP/plain"
	facts torch-short 'loss|memory|backend' 6
	part torch-uvmrun 0 "${RUN[@]}" -- "$PYTHON" "$train" --expect "$TMP/plain"
	facts torch-uvmrun 'uvmrust|uvmrun|loss|memory' 8
	part torch-announced 0 announced 0 "$PYTHON" "$train" --expect "$TMP/plain"
	facts torch-announced '^fact|losses|median' 8
	part torch-joined 0 announced 400 "$PYTHON" "$train" --expect "$TMP/plain"
	facts torch-joined '^fact|losses|median' 8
	part torch-unmanaged 0 "${RUN[@]}" --no-managed -- "$PYTHON" "$train" --expect "$TMP/plain"
	facts torch-unmanaged 'losses|median' 4
	part torch-recipe 0 "$PYTHON" "$tests/torch_recipe.py" "$KIT/source/docs/discard-guide.md" "$KIT/lib/libuvmrust_torch.so"
	facts torch-recipe '^torch' 1
	part torch-recipe-package 0 "$PYTHON" "$tests/torch_recipe.py" "$KIT/source/docs/discard-guide.md" "$KIT/python"
	facts torch-recipe-package '^torch' 1
	part torch-unannounced 0 "${RUN[@]}" --no-announce -- "$PYTHON" "$train" --expect "$TMP/plain"
	facts torch-unannounced 'losses|median' 4
	recorded_and_planned "$train"
	unmodified
}

# before_callers FOLDER: the path of a Python that finds what is there first, then what its caller's finds.
before_callers() { echo "$1${CALLERS_PATH:+:$CALLERS_PATH}"; }

# What pip installs of the wheel, if the kit has one, else the package as cargo builds it: with the arrays
# of other libraries, and the plans inside PyTorch.
packages() {
	local wheel=("$KIT"/uvmrust-*.whl) site=$KIT/python path
	if [ -f "${wheel[0]}" ]; then
		site=$TMP/site
		part wheel 0 "$PYTHON" -m pip install --quiet --no-index --no-deps --target "$site" "${wheel[0]}"
		part torch-wheel 0 env PYTHONPATH="$(before_callers "$site")" "$PYTHON" "$1/gpu_torch.py"
	else
		skip wheel "the kit has none (make wheel-uvmrust)"
	fi
	path=$(before_callers "$site")
	part arrays 0 env PYTHONPATH="$path" "$PYTHON" "$1/gpu_arrays.py"
	facts arrays '.' 40
	part torch-offload 0 env PYTHONPATH="$path" UVMSIM="$KIT/bin/uvmsim" "$PYTHON" "$1/gpu_offload.py"
	facts torch-offload '^fact|ok' 12
}

# known NUMBER SEED BACKEND [VARIABLE]: a program that a GPU found wrong, or that ended there, $RANDOM_AGAIN
# times: as it is, which must hold; and counting on an order that is not there, by the variable, as the model
# did then, without waits and with.
known() {
	local number=$1 seed=$2 variable=${4:-} name=random-$1 set=(env GPUS=1 "BACKEND=$3")
	if [ "$3" = cuda ]; then
		set+=(UVMRUST_FD=0 STUB_UVM=)
		[ "$number" != 5253 ] || name+=-cuda
	fi
	set+=(SEED="$seed" FIRST="$number" PROGRAMS=1 AGAIN="$RANDOM_AGAIN" LD_PRELOAD="$KERNELS")
	known_part "$name" 0 "${set[@]}"
	[ -n "$variable" ] || return 0
	known_part "$name-counting" 0,1 "${set[@]}" "$variable=1"
	known_part "$name-counting-waits" 0,1 "${set[@]}" "$variable=1" WAIT=1
}

known_part() {
	part "$@" "$KIT/bin/uvmrust-random"
	facts "$1" 'was wrong' 1
	facts "$1" ': wrong: |^wrong: ' 2
}

random_known() {
	KERNELS=${LD_PRELOAD:-$KIT/lib/libgpu_kernels.so}
	# On launches of empty graphs for an order.
	known 1002 1 native EMPTY_ORDERS
	known 1543 1 cuda EMPTY_ORDERS
	# On the program's wait for a blocking stream without work of its own behind the legacy stream.
	known 5253 2 native EVENTS_WAIT
	known 5253 2 cuda EVENTS_WAIT
	# A graph is destroyed while another stream is being captured.
	known 7706 3 native
	known 465 4 cuda
}

# The random programs, whose kernels are PTX here; on the stub they are its own.
random_programs() {
	local program
	local one=(env GPUS=1 BACKEND=native SEED=1 FIRST=410 PROGRAMS=1 TRACE=1 LD_PRELOAD="$KERNELS")
	# The program that has shown CUDA's discard to lose data: by libuvmrust as it is, and with a
	# fix taken out (--cfg broken="7"), which need not be right.
	part random-410 0 "${one[@]}" "$KIT/bin/uvmrust-random"
	facts random-410 'SEED|wrong' 3
	program=$KIT/bin/uvmrust-random-broken-7
	if [ -x "$program" ]; then
		part random-410-broken 0,1 "${one[@]}" "$program"
		facts random-410-broken 'SEED|wrong' 3
		part random-410-broken-waits 0,1 "${one[@]}" WAIT=1 "$program"
		facts random-410-broken-waits 'SEED|wrong' 3
		part random-broken-waits 0,1 env GPUS=1 BACKEND=native PROGRAMS=1000000 LIMIT_S=6 WAIT=1 \
			LD_PRELOAD="$KERNELS" "$program"
		facts random-broken-waits 'SEED|wrong' 3
	fi
	# By CUDA alone: standard input is no descriptor of UVM.
	part random-cuda 0 env GPUS=1 BACKEND=cuda UVMRUST_FD=0 SEED="$RANDOM_SEED" PROGRAMS=1000000 LIMIT_S="$RANDOM_CUDA_S" \
		LD_PRELOAD="$KERNELS" STUB_UVM='' "$KIT/bin/uvmrust-random"
	facts random-cuda 'SEED|wrong' 3
	part random 0 env GPUS=1 BACKEND=native SEED="$RANDOM_SEED" PROGRAMS=1000000 LIMIT_S="$RANDOM_S" \
		LD_PRELOAD="$KERNELS" "$KIT/bin/uvmrust-random"
	facts random 'SEED|wrong' 3
}

run_all() {
	KIT=$(cd "$1" && pwd) || exit 1
	OUT=${OUT:-$TOP/out/gpu-check}
	mkdir -p "$OUT" || exit 1
	TMP=$(mktemp -d) || exit 1
	trap 'rm -rf "$TMP"' EXIT
	export KIT OUT TMP PYTHON UVMRUST_KIT=$KIT TMPDIR=$TMP PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
	CALLERS_PATH=${PYTHONPATH:-}
	PYTHONPATH=$(before_callers "$KIT/python")
	export PYTHONPATH
	export LD_LIBRARY_PATH=$KIT/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
	export -f about_the_machine announced as_json example losses plan scraped selftest while_busy have
	chmod +x "$KIT"/bin/* "$KIT"/tests/* 2>/dev/null
	if [ "$STUB" = 1 ]; then
		export LD_PRELOAD=$KIT/stub/libcuda.so.1 STUB_UVM=${STUB_UVM:-native} UVMRUST_FD=900
	fi
	echo "TAP version 13"
	tools
	examples
	random_known
	pytorch
	random_programs
	echo "1..$count"
	printf '# in %s s: %s parts, %s failed, %s skipped\n' "$SECONDS" "$count" "$failed" "$skipped"
	printf '%s' "$results" >"$OUT/summary.tap"
	tar -C "$OUT" -czf "$TMP/logs.tar.gz" --exclude=logs.tar.gz . && mv "$TMP/logs.tar.gz" "$OUT/"
	[ "$failed" = 0 ]
}

kit='' build_into='' ONLY='' STUB=0
while [ $# -gt 0 ]; do
	case $1 in
	--build) build_into=${2:?--build needs a folder} && shift ;;
	--kit) kit=${2:?--kit needs a folder} && shift ;;
	--only) ONLY=${2:?--only needs an expression} && shift ;;
	--stub) STUB=1 ;;
	*) die "usage: gpu-check.sh [--build DIR | --kit DIR] [--stub] [--only RE]" ;;
	esac
	shift
done
if [ -n "$build_into" ]; then
	build "$build_into"
elif [ -n "$kit" ]; then
	run_all "$kit"
else
	build "$TOP/out/gpu-kit" && run_all "$TOP/out/gpu-kit"
fi
