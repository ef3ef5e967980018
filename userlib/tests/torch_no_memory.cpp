/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Allocates more than there is, as PyTorch does: by std::function. Arguments: the allocator, and
 * what is to come: "error", a c10::OutOfMemoryError; "plain", a c10::Error; "null".
 */
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <signal.h>
#include <unistd.h>

#include "torch_c10.h"

extern "C" {
#include "cuda.h"
}

static std::function<void *(std::size_t, int, void *)> alloc;
/* PyTorch says the same, and programs look for it. */
static const char memory[] = "CUDA out of memory. Tried to allocate";

/* What a request of so many bytes comes to, and whether an error says that. */
static std::string outcome(std::size_t bytes, int device = 0, const char *said = memory)
{
	try {
		return alloc(bytes, device, nullptr) ? "memory" : "null";
	}
#ifndef NO_C10
	catch (const c10::OutOfMemoryError &error) {
		EXPECT(std::strstr(error.what(), said) != nullptr);
		return "error";
	} catch (const c10::Error &error) {
		EXPECT(std::strstr(error.what(), said) != nullptr);
		return "plain";
	}
#endif
	catch (...) {
		return "something else";
	}
}

int main(int argc, char **argv)
{
	void *library = dlopen(argv[1], RTLD_NOW), *may_fail;
	int pipes[2];

	if (!library) {
		puts(dlerror());
		return 2;
	}
	alloc = reinterpret_cast<void *(*)(std::size_t, int, void *)>(
		dlsym(library, "uvmrust_torch_malloc"));
	may_fail = dlsym(library, "uvmrust_torch_try_malloc");
	use_device(0);
	/* Nobody reads what is said, as when a program's output went to one that has ended. */
	signal(SIGPIPE, SIG_IGN);
	EXPECT(pipe(pipes) == 0 && dup2(pipes[1], 2) == 2);
	close(pipes[0]);
	close(pipes[1]);
	for (int i = 0; i < 3; i++) {
		EXPECT(outcome((std::size_t)1 << 62) == argv[2]);
		/* And the program goes on. */
		EXPECT(outcome(1 << 20) == "memory");
		/* A GPU that is not there, as one whose context is broken, is not out of memory. */
		EXPECT(outcome(1 << 20, 63, "CUDA error: ") ==
		       (!std::strcmp(argv[2], "null") ? "null" : "plain"));
	}
	EXPECT(may_fail != nullptr);
	alloc = reinterpret_cast<void *(*)(std::size_t, int, void *)>(may_fail);
	EXPECT(outcome((std::size_t)1 << 62) == "null");
#ifndef NO_C10
	EXPECT(c10::alive == 0);
#endif
	return failed;
}
