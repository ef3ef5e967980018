# SPDX-License-Identifier: GPL-2.0 OR MIT
# Sourced by test.sh: what `make test` consists of.
# shellcheck shell=bash

# every_rust_file: formatted as rustfmt.toml says, in and out of the workspace.
rustfmt_check() {
	local f bad=0
	for f in $(git ls-files '*.rs' 2>/dev/null || find src sim tests userlib -name '*.rs' -not -path '*/target/*'); do
		rustfmt --edition 2021 --check --config-path "$TOP/rustfmt.toml" <"$f" >/dev/null 2>&1 ||
			{ echo "$f is not formatted: rustfmt --edition 2021 $f"; bad=1; }
	done
	return $bad
}

host_parts() {
	part host/rustfmt rustfmt_check
	part host/clippy cargo clippy --workspace --all-targets --quiet -- -D warnings
	part host/docs env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet
	part host/cargo-test cargo test --workspace
	if have shellcheck; then
		part host/shellcheck shellcheck -x scripts/*.sh
	else
		skip host/shellcheck "shellcheck is not installed"
	fi
	if cargo +nightly miri --version >/dev/null 2>&1; then
		part host/miri env MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test -p uvm-policy
	else
		skip host/miri "no nightly toolchain with Miri (rustup +nightly component add miri rust-src)"
	fi
}
