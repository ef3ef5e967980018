/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* RMM's exceptions, as far as uvmrust_rmm.hpp throws them. */
#pragma once

#include <new>
#include <string>

namespace rmm {

class bad_alloc : public std::bad_alloc {
	std::string text;

public:
	bad_alloc(const char *message) : text(message) {}
	const char *what() const noexcept override { return text.c_str(); }
};

class out_of_memory : public bad_alloc {
public:
	using bad_alloc::bad_alloc;
};

} // namespace rmm
