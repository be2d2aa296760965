// The code of routines, with the arguments of a kernel, and what memory it takes. routine.cpp alone calls it.
#pragma once

#include <cstdint>

#include "onepass/dtype.h"

namespace onepass::runtime {

void run_sort(const std::int64_t* words, std::int64_t begin, std::int64_t end, void* scratch);
void run_argsort(const std::int64_t* words, std::int64_t begin, std::int64_t end, void* scratch);
void run_assign(const std::int64_t* words, std::int64_t begin, std::int64_t end, void* scratch);
void run_search(const std::int64_t* words, std::int64_t begin, std::int64_t end, void* scratch);

/// Of what is moved for each element while it is sorted: a key, or a key and a place.
std::int64_t sort_element_bytes(DType type, bool places, std::int64_t length);
std::int64_t sort_scratch_bytes(DType type, bool places, std::int64_t length, std::int64_t rows);  // of an item
std::int64_t shared_sort_phases(DType type);
std::int64_t shared_sort_bytes(DType type, bool places, std::int64_t length, std::int64_t chunks);  // of a row
std::int64_t select_scratch_bytes(DType type, std::int64_t length, std::int64_t results, std::int64_t chunks);
std::int64_t select_shared_bytes(DType type, std::int64_t length, std::int64_t results);  // of an item

}  // namespace onepass::runtime
