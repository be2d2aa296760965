// ONEPASS_API marks the exported symbols of libonepass.so; all other symbols are hidden.
#pragma once

#define ONEPASS_API __attribute__((visibility("default")))
