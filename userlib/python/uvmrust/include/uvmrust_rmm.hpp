/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A memory resource for RMM: managed memory whose free blocks are discarded.
 *
 *	uvmrust::memory_resource mr;		// for the current GPU
 *	rmm::device_buffer buffer(bytes, stream, mr);
 *
 * Link with libuvmrust_torch.so, or with the library that uvmrust.library() names in Python:
 * one of the two in a process, since each has an allocator of its own.
 *
 * What is free waits in the stream of its allocation. Before that stream is destroyed (an
 * rmm::cuda_stream is, with its scope), free all that was allocated in it, and call
 * uvmrust_torch_empty_cache(): CUDA gives the handle to another stream later, which would use the
 * memory while work of the first still may.
 *
 * The handle 0 is the default stream that all threads share, or in a unit of
 * CUDA_API_PER_THREAD_DEFAULT_STREAM the calling thread's own, as it is for CUDA and for RMM
 * there. Such units have another type of resource than units without: one of one type frees
 * what it has allocated itself.
 *
 * RMM has had two interfaces. Up to 26.04 a resource derives from
 * rmm::mr::device_memory_resource; from 26.06 on there is no such class, and a resource is
 * any type with the members that the concept cuda::mr::resource asks for. This header takes
 * the base class where RMM has it.
 */
#ifndef UVMRUST_RMM_HPP
#define UVMRUST_RMM_HPP

#include <cstddef>

#include <cuda_runtime_api.h>

#include <rmm/error.hpp>

#if __has_include(<rmm/mr/device_memory_resource.hpp>)
#include <rmm/mr/device_memory_resource.hpp>
#define UVMRUST_RMM_HAS_BASE 1
#elif __has_include(<rmm/mr/device/device_memory_resource.hpp>)
#include <rmm/mr/device/device_memory_resource.hpp>
#define UVMRUST_RMM_HAS_BASE 1
#else
#include <cuda/memory_resource>
#include <cuda/stream_ref>
#define UVMRUST_RMM_HAS_BASE 0
#endif

extern "C" {
void *uvmrust_torch_try_malloc(std::size_t bytes, int device, void *stream);
void uvmrust_torch_free(void *address, std::size_t bytes, int device, void *stream);
void uvmrust_torch_record_stream_on(void *address, int device, void *stream);
int uvmrust_torch_wait(int device, void *stream);
void uvmrust_torch_empty_cache(void);
}

namespace uvmrust {

/* The functions are inline: of two with one name, the linker would take one for all units. */
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
inline namespace per_thread_default_stream {
#else
inline namespace legacy_default_stream {
#endif

namespace detail {

/* Every block begins at a multiple of so many bytes. */
inline constexpr std::size_t alignment = 512;
/* RMM's own, and the default of its calls. */
inline constexpr std::size_t rmm_alignment = 256;

/*
 * The stream that a handle of this unit means, by a handle that says so everywhere: the
 * allocator is compiled elsewhere. What it has for threads' own streams is in the order of the
 * legacy one, so a 0 that a unit of the other kind has passed on is in order as well.
 */
inline cudaStream_t meant(cudaStream_t stream) noexcept
{
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
	if (!stream)
		return cudaStreamPerThread;
#endif
	return stream;
}

inline int current_device()
{
	int device = 0;

	if (cudaGetDevice(&device) != cudaSuccess)
		throw rmm::bad_alloc("uvmrust: no current GPU: call cudaSetDevice first");
	return device;
}

inline void *allocate(int device, std::size_t bytes, std::size_t align, cudaStream_t stream)
{
	if (align == 0 || (align & (align - 1)) != 0 || align > alignment)
		throw rmm::bad_alloc("uvmrust: alignment must be a power of two up to 512");
	void *p = uvmrust_torch_try_malloc(bytes, device, meant(stream));
	if (!p)
		throw rmm::out_of_memory("uvmrust: managed memory could not be had");
	return p;
}

/*
 * RMM frees in the stream of the last use, which need not be the one of the allocation, in
 * whose order the block is discarded and given out again. So that one is made to wait.
 */
inline void deallocate(int device, void *p, std::size_t bytes, cudaStream_t stream) noexcept
{
	if (!p)
		return;
	stream = meant(stream);
	uvmrust_torch_record_stream_on(p, device, stream);
	uvmrust_torch_free(p, bytes, device, stream);
}

} // namespace detail

/*
 * All resources for one GPU are equal: what one has allocated, another may free. Copies are
 * the same resource. The allocator behind it is the process's, and outlives them all.
 */
class memory_resource final
#if UVMRUST_RMM_HAS_BASE
	: public rmm::mr::device_memory_resource
#endif
{
public:
	/* For the GPU that is current now. */
	memory_resource() : device_(detail::current_device()) {}
	/* For a GPU by CUDA's number. */
	explicit memory_resource(int device) : device_(device) {}

	int device() const noexcept { return device_; }

#if UVMRUST_RMM_HAS_BASE
private:
	void *do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override
	{
		return detail::allocate(device_, bytes, detail::rmm_alignment, stream.value());
	}

	/* noexcept from RMM 25.12 on, which one without takes too. */
	void do_deallocate(void *p, std::size_t bytes, rmm::cuda_stream_view stream) noexcept override
	{
		detail::deallocate(device_, p, bytes, stream.value());
	}

	bool do_is_equal(rmm::mr::device_memory_resource const &other) const noexcept override
	{
		auto same = dynamic_cast<memory_resource const *>(&other);

		return same && same->device_ == device_;
	}
#else
	void *allocate(cuda::stream_ref stream, std::size_t bytes,
		       std::size_t align = detail::rmm_alignment)
	{
		return detail::allocate(device_, bytes, align, stream.get());
	}

	void deallocate(cuda::stream_ref stream, void *p, std::size_t bytes,
			std::size_t = detail::rmm_alignment) noexcept
	{
		detail::deallocate(device_, p, bytes, stream.get());
	}

	/*
	 * Ready for every stream when it returns: a block that was freed may be on its way. So the
	 * default stream of this GPU is waited for, whichever is current, with all that it comes behind.
	 */
	void *allocate_sync(std::size_t bytes, std::size_t align = detail::rmm_alignment)
	{
		void *p = detail::allocate(device_, bytes, align, cudaStreamLegacy);

		if (uvmrust_torch_wait(device_, cudaStreamLegacy) != 0) {
			uvmrust_torch_free(p, bytes, device_, cudaStreamLegacy);
			throw rmm::bad_alloc("uvmrust: the default stream cannot be waited for");
		}
		return p;
	}

	/* All work on it is done. */
	void deallocate_sync(void *p, std::size_t bytes,
			     std::size_t = detail::rmm_alignment) noexcept
	{
		if (p)
			uvmrust_torch_free(p, bytes, device_, cudaStreamLegacy);
	}

	bool operator==(memory_resource const &other) const noexcept
	{
		return device_ == other.device_;
	}

	bool operator!=(memory_resource const &other) const noexcept { return !(*this == other); }

	friend constexpr void get_property(memory_resource const &,
					   cuda::mr::device_accessible) noexcept {}
	friend constexpr void get_property(memory_resource const &,
					   cuda::mr::host_accessible) noexcept {}

private:
#endif
	int device_;
};

} // inline namespace
} // namespace uvmrust

#endif
