package main

import (
	"encoding/json"
	"slices"

	"comet/agent"
)

// checkNames refuses parameters that would not arrive: O1 reads pairs of these names as
// something else. Those that tell O1 how it is to be done (keep, parallel, …) may be given.
func checkNames(r *agent.LineRequest) error {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(r.Parameters, &given); err != nil {
		return usagef("the parameters must be a JSON object: %w", err)
	}
	if given["call"] != nil {
		return usagef("no parameter can be called call with --dialect v5: it is the WORK-TYPE, %s", r.Capability)
	}
	if given["timeout"] != nil && r.Timeout > 0 {
		return usagef("no parameter can be called timeout beside --timeout, which says the same")
	}
	taken := []string{"params", "token", "auth", "retry", "fallback_from", "reason", "simplify"}
	if i := slices.IndexFunc(taken, func(name string) bool { return given[name] != nil }); i >= 0 {
		return usagef("no parameter can be called %s with --dialect v5, where O1 reads it as something else; the envelope protocol can say it", taken[i])
	}
	return nil
}
