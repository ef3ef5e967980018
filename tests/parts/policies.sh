#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# What each eviction policy makes of a scan, and that a policy of no such name is refused with a line for each that
# there is. They are chosen when the module is loaded.
#
#   policies.sh             runs that in the VM
#   policies.sh --names     prints the policies that are in the tree
#   policies.sh --command   prints what would run in the VM
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
cd "$TOP"

policy_names() {
	find src/uvm_rust/policy/evict/policies -name '*.rs' -not -name tests.rs \
		-exec sed -n 's/.*const NAME: &.static str = "\(.*\)";/\1/p' {} + | sort
}

names=$(policy_names | paste -sd' ')
# A loop over no policy would find nothing wrong with any.
[ -n "$names" ] || die "no policy below src/uvm_rust/policy/evict/policies says its name"
command="
	policy() { UVM_ARGS=\"\$UVM_ARGS uvm_rust_evict_policy=\$1\" bash scripts/vm-load.sh rust; }
	for p in $names; do policy \$p && target/release/policy && bash scripts/vm-load.sh unload || exit; done
	if policy none 2>/dev/null; then echo -n 'not '
	else for p in $names; do dmesg | grep -qw \"uvm_rust_evict_policy: \$p\" || { echo -n 'not '; break; }; done
	fi
	echo 'ok 1 - policy: no such policy, and the log says which there are'
	echo 1..1"
case ${1:-} in
'') DRIVER=rust NOLOAD=1 VIDMEM=64M VM_TIMEOUT=900 scripts/vm.sh "$command" ;;
--names) policy_names ;;
--command) echo "$command" ;;
*) die "policies.sh: use --names, --command or nothing" ;;
esac
