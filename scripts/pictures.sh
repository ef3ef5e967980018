#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Draws README's pictures anew, from what the programs say now: docs/img/demo.svg and docs/img/uvmtop.svg.
#
#   pictures.sh [demo] [uvmtop]    all, or these
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
cd "$TOP"
mkdir -p out docs/img

# draw PICTURE TITLE COMMAND: the standard input under the command, as a picture. Nothing takes the place of a
# picture that could not be made.
draw() {
	local text=out/$1.txt
	{ echo "\$ $3"; cat; } >"$text"
	[ "$(wc -l <"$text")" -gt 3 ] || die "$3 says nothing that a picture could show: $text"
	scripts/terminal-svg.py --title "$2" <"$text" >"out/$1.svg"
	mv "out/$1.svg" "docs/img/$1.svg"
	say "drawn: docs/img/$1.svg"
}

demo() {
	scripts/demo.sh >out/demo.table
	{ cat out/demo.table; echo "==> written to out/demo.json"; } |
		draw demo "NVIDIA's driver, unmodified and with Rust, on a software GPU" "make demo"
}

# uvmtop looks for three seconds at a demo that goes on, once it has more than the GPU holds.
uvmtop() {
	cargo build --release --quiet -p uvm-suite -p uvmtop
	DRIVER=rust VIDMEM=64M VM_TIMEOUT=${VM_TIMEOUT:-600} scripts/vm.sh '
		(while target/release/demo --size 1.5 --quiet; do :; done) >/dev/null &
		until target/release/uvmtop --once | grep -q "  evicted [1-9]"; do sleep 1; done
		target/release/uvmtop --once --interval 3
		kill $!; pkill -P $!; wait' >out/uvmtop.said
	grep -v '^\(ok\|not ok\|1\.\.\)' out/uvmtop.said | draw uvmtop "uvmtop, beside make demo" "uvmtop --once --interval 3"
}

[ $# -gt 0 ] || set -- demo uvmtop
for picture; do
	case $picture in
	demo | uvmtop) "$picture" ;;
	*) die "pictures.sh [demo] [uvmtop]" ;;
	esac
done
