/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A CUDA program for a real GPU that knows of nothing: plain device memory, a kernel
 * given as PTX, copies to and from the host. Takes 8 MiB. Says whether CUDA holds the
 * memory for managed, which under the preload it is.
 *
 * Exits with 0 if the results are right, 1 if not, 77 where there is no GPU.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define WORDS ((uint32_t)2 << 20)
#define BYTES (WORDS * sizeof(uint32_t))
#define ROUNDS 8
#define IS_MANAGED 8 /* CU_POINTER_ATTRIBUTE_IS_MANAGED */

/* words[i] += by for i < count, by one thread each. */
static const char ptx[] =
	".version 6.0\n"
	".target sm_50\n"
	".address_size 64\n"
	".visible .entry add(.param .u64 words, .param .u32 count, .param .u32 by)\n"
	"{\n"
	"	.reg .pred %out;\n"
	"	.reg .b32 %i, %n, %v, %t;\n"
	"	.reg .b64 %p, %at;\n"
	"	mov.u32 %i, %ctaid.x;\n"
	"	mov.u32 %n, %ntid.x;\n"
	"	mov.u32 %t, %tid.x;\n"
	"	mad.lo.u32 %i, %i, %n, %t;\n"
	"	ld.param.u32 %n, [count];\n"
	"	setp.ge.u32 %out, %i, %n;\n"
	"	@%out bra done;\n"
	"	ld.param.u64 %p, [words];\n"
	"	cvta.to.global.u64 %p, %p;\n"
	"	mul.wide.u32 %at, %i, 4;\n"
	"	add.u64 %p, %p, %at;\n"
	"	ld.param.u32 %t, [by];\n"
	"	ld.global.u32 %v, [%p];\n"
	"	add.u32 %v, %v, %t;\n"
	"	st.global.u32 [%p], %v;\n"
	"done:\n"
	"	ret;\n"
	"}\n";

static void *library;

static void *find(const char *name)
{
	void *function = dlsym(library, name);

	if (!function) {
		fprintf(stderr, "libcuda.so.1 has no %s\n", name);
		exit(1);
	}
	return function;
}

static void check(int error, const char *what)
{
	if (error) {
		fprintf(stderr, "%s: CUDA error %d\n", what, error);
		exit(1);
	}
}

/* The type is that of CUDA's documentation, with pointers to structures as void *. */
#define CALL(name, types, ...) \
	do { \
		int (*f) types; \
		*(void **)&f = find(#name); \
		check(f(__VA_ARGS__), #name); \
	} while (0)

static void start(void)
{
	int (*init)(unsigned int), (*count)(int *), version = 0, gpus = 0;
	void *context = NULL;

	library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library) {
		puts("no libcuda.so.1");
		exit(77);
	}
	*(void **)&init = find("cuInit");
	*(void **)&count = find("cuDeviceGetCount");
	if (init(0) || count(&gpus) || !gpus) {
		puts("no GPU that CUDA can use");
		exit(77);
	}
	CALL(cuDriverGetVersion, (int *), &version);
	printf("CUDA %d.%d\n", version / 1000, version % 1000 / 10);
	CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, 0);
	CALL(cuCtxSetCurrent, (void *), context);
}

int main(void)
{
	uint32_t *host = malloc(BYTES), count = WORDS, by, sum = 0, i;
	void *module = NULL, *add = NULL;
	uint64_t words = 0;
	unsigned int managed = 0;

	if (!host)
		return 1;
	start();
	CALL(cuModuleLoadData, (void **, const void *), &module, ptx);
	CALL(cuModuleGetFunction, (void **, void *, const char *), &add, module, "add");
	CALL(cuMemAlloc_v2, (uint64_t *, size_t), &words, BYTES);
	CALL(cuPointerGetAttribute, (void *, int, uint64_t), &managed, IS_MANAGED, words);
	printf("managed %u\n", managed);

	for (i = 0; i < WORDS; i++)
		host[i] = i;
	CALL(cuMemcpyHtoD_v2, (uint64_t, const void *, size_t), words, host, BYTES);
	for (by = 1; by <= ROUNDS; by++) {
		void *params[] = { &words, &count, &by };

		CALL(cuLaunchKernel,
		     (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
		      void **, void **),
		     add, (WORDS + 255) / 256, 1, 1, 256, 1, 1, 0, NULL, params, NULL);
		sum += by;
	}
	CALL(cuCtxSynchronize, (void));
	CALL(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), host, words, BYTES);
	CALL(cuMemFree_v2, (uint64_t), words);
	for (i = 0; i < WORDS; i++) {
		if (host[i] != i + sum) {
			printf("word %u is %u, not %u\n", i, host[i], i + sum);
			return 1;
		}
	}
	puts("results right");
	return 0;
}
