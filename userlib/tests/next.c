/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A library that wraps functions of libc's, as tools do, and a program that uses
 * it: RTLD_NEXT must mean "after this library", whoever stands in dlsym and dlvsym.
 * And a library whose symbols have versions, one of them by a name of CUDA's.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The version that dlsym has in the oldest glibc of a processor. */
#ifdef __x86_64__
#define OLDEST "GLIBC_2.2.5"
#else
#define OLDEST "GLIBC_2.17"
#endif

#ifdef VERSIONED
int cuLaunchKernel(void)
{
	return 7;
}

int cuOfItsOwn(void)
{
	return 8;
}
#elif defined(WRAPPER)
int wrapped;

char *strdup(const char *s)
{
	char *(*next)(const char *);

	*(void **)&next = dlsym(RTLD_NEXT, "strdup");
	if ((void *)next == (void *)strdup)
		return NULL;
	wrapped++;
	return next(s);
}

char *strndup(const char *s, size_t most)
{
	char *(*next)(const char *, size_t);

	*(void **)&next = dlvsym(RTLD_NEXT, "strndup", OLDEST);
	if ((void *)next == (void *)strndup)
		return NULL;
	wrapped++;
	return next(s, most);
}

/* Who asks for it while the preload reads its settings must not wait for itself. */
char *getenv(const char *name)
{
	static char *(*next)(const char *);

	if (!next) {
		alarm(60);
		*(void **)&next = dlvsym(RTLD_NEXT, "getenv", OLDEST);
	}
	return next(name);
}

/* As dlsym is found by who stands in front of it. */
void *next_dlsym(void)
{
	return dlvsym(RTLD_NEXT, "dlsym", OLDEST);
}

/* As a library finds CUDA behind itself. */
void *next_launch(void)
{
	return dlsym(RTLD_NEXT, "cuLaunchKernel");
}
#else
extern int wrapped;
void *next_dlsym(void), *next_launch(void);

/* What the preload answers for a library with versions, if it does; else what the library has. */
static int versions(const char *path, int hooked)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL), *(*next)(void *, const char *);
	int (*launch)(void), (*own)(void);
	const char *version = strrchr(path, '/') + 1;
	void *ours = dlsym(RTLD_DEFAULT, "cuLaunchKernel");
	int loaded = getenv("LD_PRELOAD") != NULL;
	Dl_info info;

	*(void **)&launch = dlvsym(library, "cuLaunchKernel", version);
	*(void **)&own = dlvsym(library, "cuOfItsOwn", version);
	*(void **)&next = next_dlsym();
	if (!library || !launch || !own || own() != 8 || !next)
		return 5;
	if (dlvsym(library, "cuLaunchKernel", "another") || !dlerror())
		return 6;
	if (hooked ? !ours || (void *)launch != ours : launch() != 7)
		return 7;
	if (next(library, "cuLaunchKernel") != (void *)launch)
		return 8;
	/* The next dlsym is the preload's, which is before libc's, also where it has nothing to do. */
	if (loaded ? (void *)next != dlsym(RTLD_DEFAULT, "dlsym") :
		     !dladdr((void *)next, &info) || !strstr(info.dli_fname, "libc.so"))
		return 9;
	if (loaded && dlvsym(RTLD_DEFAULT, "dlvsym", OLDEST) != dlsym(RTLD_DEFAULT, "dlvsym"))
		return 10;
	if (!dladdr(next_launch(), &info) || !strstr(info.dli_fname, version))
		return 11;
	return 0;
}

int main(int argc, char **argv)
{
	char *part = strndup("copy", 2);
	char *copy = strdup("copy");
	Dl_info info;
	void *puts_address = dlsym(RTLD_DEFAULT, "puts");

	if (!copy || strcmp(copy, "copy") || wrapped != 2 || !part ||
	    strcmp(part, "co"))
		return 1;
	if (!puts_address || !dladdr(puts_address, &info) || !strstr(info.dli_fname, "libc"))
		return 2;
	/* What is not there, and CUDA where there is none. */
	if (dlsym(RTLD_DEFAULT, "no_such_function") || !dlerror())
		return 3;
	if (dlsym(dlopen("libc.so.6", RTLD_NOW), "cuLaunchKernel"))
		return 4;
	return argc > 2 ? versions(argv[1], argv[2][0] == '1') : 0;
}
#endif
