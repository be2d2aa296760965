// ONEPASS_API marks the exported symbols of libonepass.so; all others are hidden.
#pragma once

#define ONEPASS_API __attribute__((visibility("default")))
