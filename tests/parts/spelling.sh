#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Checks the spelling of every file of ours.
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
. "$(dirname "$0")/../../scripts/lib.sh"
cd "$TOP"
# What codespell 2.2 and 2.4 (Debian 12 and 13) take for slips are names.
names=crate,statics,fo,nd,filp,unexpect,inforce,inflight,upto,fro,busses,whats,parm,deques,activ,aline,ratatui,triggerin
{ git ls-files 2>/dev/null || find . -type f -not -path '*/target/*' -not -path './out/*'; } |
	grep -vE '\.(svg|lock|json|csv|gz)$|^(\./)?LICENSES/|bindings\.rs$' | tr '\n' '\0' | xargs -0 codespell -L "$names"
