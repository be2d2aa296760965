// ONEPASS_API marks what libonepass.so exports; everything else in it is hidden.
#pragma once

#define ONEPASS_API __attribute__((visibility("default")))
