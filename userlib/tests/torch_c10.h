/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
#ifndef TORCH_C10_H
#define TORCH_C10_H

#include <cstdint>
#include <exception>
#include <string>

namespace c10 {

struct SourceLocation {
	const char *function, *file;
	std::uint32_t line;
};

class Error : public std::exception {
	std::string text, where;

public:
	Error(SourceLocation where, std::string text);
	~Error() override;
	const char *what() const noexcept override;
};

class OutOfMemoryError : public Error {
	using Error::Error;
};

/* How many errors there are. */
extern int alive;

namespace detail {

void torchCheckFail(const char *function, const char *file, std::uint32_t line, const char *text);

} // namespace detail

} // namespace c10

#endif
