package models

import "strings"

// CustomPrefix is the prefix of capabilities that are not predefined (CHE·NU §6.2).
const CustomPrefix = "custom:"

// CapabilityKey returns the name without the prefix custom:. Names with equal keys are the same
// capability.
func CapabilityKey(name string) string { return strings.TrimPrefix(name, CustomPrefix) }
