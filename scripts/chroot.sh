# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Sourced by what tries things in a distribution of its own, in the folder $root:
# test-install.sh and test-kernels.sh.
# shellcheck shell=bash

# debian_mirror: the archive this machine's apt already uses.
debian_mirror() {
	# shellcheck disable=SC2016
	echo "${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' | awk '$1 == "Debian" { print $2; exit }')}" | grep . ||
		die "this machine's apt names no archive of Debian's: DEBIAN_MIRROR=URL"
}

# debian_security: beside it, if it has what Debian's own mirrors have.
debian_security() { echo "${DEBIAN_SECURITY:-$(debian_mirror | sed 's|/*$|-security|')}"; }

# inside COMMAND...: in the distribution in $root.
inside() {
	env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C DEBIAN_FRONTEND=noninteractive \
		chroot "${root:?}" "$@"
}

# get PACKAGE...: install them there.
get() { inside apt-get -y -q --no-install-recommends install "$@"; }

# no_services: what is installed there starts nothing, and finds the network's names.
no_services() {
	printf '#!/bin/sh\nexit 101\n' >"$1/usr/sbin/policy-rc.d"
	chmod +x "$1/usr/sbin/policy-rc.d"
	cp /etc/resolv.conf "$1/etc/resolv.conf"
}
