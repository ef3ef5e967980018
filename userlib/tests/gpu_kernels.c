/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The stub's kernels "put" and "get" on a real GPU: preloaded, it lets the random programs
 * (userlib/random, GPUS=1) run there. Launches of these become kernels given as PTX; what
 * "get" reads is told by a host function behind it, since a GPU need not reach the program's
 * memory. All else is libcuda's own.
 *
 *   cc -shared -fPIC gpu_kernels.c -ldl -o libgpu_kernels.so
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* What "get" finds where not all words are equal; as the stub has it. */
#define MIXED "0xbad0bad0bad0bad0"

/*
 * put: each word of `count` becomes `value`. get: out[0] is the first word, by the kernel "first" of one thread;
 * and MIXED if another differs, by "rest".
 */
static const char ptx[] =
	".version 6.0\n"
	".target sm_50\n"
	".address_size 64\n"
	".visible .entry put(.param .u64 base, .param .u64 count, .param .u64 value)\n"
	"{\n"
	"	.reg .pred %out;\n"
	"	.reg .b32 %a, %b, %c;\n"
	"	.reg .b64 %p, %i, %n, %v;\n"
	"	mov.u32 %a, %ctaid.x;\n"
	"	mov.u32 %b, %ntid.x;\n"
	"	mov.u32 %c, %tid.x;\n"
	"	mad.lo.u32 %a, %a, %b, %c;\n"
	"	cvt.u64.u32 %i, %a;\n"
	"	ld.param.u64 %n, [count];\n"
	"	setp.ge.u64 %out, %i, %n;\n"
	"	@%out bra done;\n"
	"	ld.param.u64 %p, [base];\n"
	"	cvta.to.global.u64 %p, %p;\n"
	"	shl.b64 %i, %i, 3;\n"
	"	add.u64 %p, %p, %i;\n"
	"	ld.param.u64 %v, [value];\n"
	"	st.global.u64 [%p], %v;\n"
	"done:\n"
	"	ret;\n"
	"}\n"
	".visible .entry first(.param .u64 base, .param .u64 count, .param .u64 out)\n"
	"{\n"
	"	.reg .b64 %p, %q, %v;\n"
	"	ld.param.u64 %p, [base];\n"
	"	ld.param.u64 %q, [out];\n"
	"	cvta.to.global.u64 %p, %p;\n"
	"	cvta.to.global.u64 %q, %q;\n"
	"	ld.global.u64 %v, [%p];\n"
	"	st.global.u64 [%q], %v;\n"
	"	ret;\n"
	"}\n"
	".visible .entry rest(.param .u64 base, .param .u64 count, .param .u64 out)\n"
	"{\n"
	"	.reg .pred %out, %same;\n"
	"	.reg .b32 %a, %b, %c;\n"
	"	.reg .b64 %p, %q, %i, %n, %v, %w;\n"
	"	mov.u32 %a, %ctaid.x;\n"
	"	mov.u32 %b, %ntid.x;\n"
	"	mov.u32 %c, %tid.x;\n"
	"	mad.lo.u32 %a, %a, %b, %c;\n"
	"	cvt.u64.u32 %i, %a;\n"
	"	ld.param.u64 %n, [count];\n"
	"	setp.ge.u64 %out, %i, %n;\n"
	"	@%out bra done;\n"
	"	ld.param.u64 %p, [base];\n"
	"	cvta.to.global.u64 %p, %p;\n"
	"	ld.global.u64 %w, [%p];\n"
	"	shl.b64 %i, %i, 3;\n"
	"	add.u64 %p, %p, %i;\n"
	"	ld.global.u64 %v, [%p];\n"
	"	setp.eq.u64 %same, %v, %w;\n"
	"	@%same bra done;\n"
	"	ld.param.u64 %q, [out];\n"
	"	cvta.to.global.u64 %q, %q;\n"
	"	mov.u64 %v, " MIXED ";\n"
	"	st.global.u64 [%q], %v;\n"
	"done:\n"
	"	ret;\n"
	"}\n";

/* What the kernels tell, in memory of the host that a GPU reaches; a place is used again after so many. */
#define PLACES ((uint64_t)1 << 20)

/* As the program has it. */
struct seen {
	uint32_t count;
	uint64_t values[16];
};

struct kernel {
	const char *name;
};

struct told {
	struct seen *seen;
	volatile uint64_t *place;
};

static int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
		     void **);
static int (*host_function)(void *, void (*)(void *), void *);
static void *put, *first, *rest;
static uint64_t *places;
static struct told *told;
static uint64_t next;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void must(int code, const char *what)
{
	if (code) {
		printf("wrong: %s gives %d\n", what, code);
		exit(1);
	}
}

static void *find(const char *name)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	void *function = library ? dlsym(library, name) : NULL;

	if (!function) {
		printf("there is no %s in a libcuda.so.1\n", name);
		exit(77);
	}
	return function;
}

/* The program finds its functions in what is loaded. */
__attribute__((constructor)) static void load_cuda(void)
{
	dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
}

/* Called before each program, with a context that is current, and outside of captures. */
EXPORT void stub_seed(uint64_t seed)
{
	int (*load)(void **, const void *), (*get)(void **, void *, const char *), (*pinned)(void **, size_t, unsigned);
	void *module;

	if (put)
		return;
	*(void **)&load = find("cuModuleLoadData");
	*(void **)&get = find("cuModuleGetFunction");
	*(void **)&pinned = find("cuMemHostAlloc");
	*(void **)&launch = find("cuLaunchKernel");
	*(void **)&host_function = find("cuLaunchHostFunc");
	must(load(&module, ptx), "cuModuleLoadData");
	must(get(&put, module, "put"), "put");
	must(get(&first, module, "first"), "first");
	must(get(&rest, module, "rest"), "rest");
	/* CU_MEMHOSTALLOC_PORTABLE and _DEVICEMAP: at the same address on the GPU. */
	must(pinned((void **)&places, PLACES * sizeof(*places), 3), "cuMemHostAlloc");
	told = calloc(PLACES, sizeof(*told));
	must(!told, "calloc");
}

EXPORT unsigned int stub_violations(void)
{
	return 0;
}

static void tell(void *data)
{
	struct told *t = data;

	t->seen->values[t->seen->count++ % 16] = *t->place;
}

EXPORT int cuLaunchKernel(struct kernel *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
			  unsigned bz, unsigned shared, void *stream, void **params, void **extra)
{
	uint64_t base = *(uint64_t *)params[0], count = *(uint64_t *)params[1] / 8, value = *(uint64_t *)params[2];
	void *given[] = { &base, &count, &value };
	unsigned int blocks = (count + 255) / 256;
	struct told *t;
	int code;

	if (strcmp(kernel->name, "get"))
		return launch(put, blocks, 1, 1, 256, 1, 1, 0, stream, given, NULL);
	pthread_mutex_lock(&lock);
	t = &told[next % PLACES];
	*t = (struct told){ (struct seen *)value, &places[next++ % PLACES] };
	pthread_mutex_unlock(&lock);
	value = (uint64_t)t->place;
	code = launch(first, 1, 1, 1, 1, 1, 1, 0, stream, given, NULL);
	if (!code)
		code = launch(rest, blocks, 1, 1, 256, 1, 1, 0, stream, given, NULL);
	return code ? code : host_function(stream, tell, t);
}
