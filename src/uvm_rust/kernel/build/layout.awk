# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Turns the answers of layout.c into what layout.rs includes.
#   ->usize.PAGE_SIZE $4096 PAGE_SIZE
#   ->sizeof.CMutex $32 ...      ->alignof.CMutex $8 ...
BEGIN { print "// Written by layout.awk." }
{
	at = index($0, "->")
	if (!at)
		next
	split(substr($0, at + 2), word, " ")
	split(word[1], name, ".")
	value = word[2]
	gsub(/[$"#]/, "", value)
	if (name[1] == "sizeof")
		size[name[2]] = value
	else if (name[1] == "alignof")
		# No type has an alignment of 0, and Rust wants one for one without a size.
		printf "opaque!(%s, %s, %s);\n", name[2], size[name[2]], value
	else
		printf "pub(crate) const %s: %s = %s;\n", name[2], name[1], value
	n++
}
END { exit n == 0 }
