/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Stands in for PyTorch's library c10, as far as it is used to say that there is no memory
 * (c10/util/Exception.h, StringUtil.h). With -DOLD it has no error of that kind.
 */
#include "torch_c10.h"

namespace c10 {

int alive;

Error::Error(SourceLocation where, std::string text)
	: text(std::move(text)), where(where.function)
{
	alive++;
}

Error::~Error()
{
	alive--;
}

const char *Error::what() const noexcept
{
	return text.c_str();
}

namespace detail {

void torchCheckFail(const char *function, const char *file, std::uint32_t line, const char *text)
{
	throw Error({ function, file, line }, text);
}

} // namespace detail

#ifndef OLD
/* The kind of an exception is where it is thrown. */
void throws_it()
{
	throw OutOfMemoryError({ "", "", 0 }, "");
}
#endif

} // namespace c10
