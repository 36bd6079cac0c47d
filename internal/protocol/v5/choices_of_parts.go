package v5

import (
	"comet/internal/orchestrator"
	wire "comet/internal/wire/v5"
)

// parseHandoffOptions reads what an X decides beforehand for its part: how long it may be silent,
// how often it is tried again, and what becomes of a question that nobody answers
// (PROTOCOL_V5 §5.3, §8.2). What a request may decide beside that is E10, because nobody
// would notice that it is not done: a part goes to the one worker that ROUTE names, its
// budget is its source's, and so is what follows where it fails.
func parseHandoffOptions(sub *orchestrator.Submission, data wire.Data) error {
	for _, c := range []struct{ key, why string }{
		{keyParallel, "a part goes to one worker"},
		{keyAggregate, "a part goes to one worker"},
		{keyFallback, "whoever hands a part off hears that it failed, and may hand it to another worker"},
		{keyOnBudget, "the budget of a part is taken out of its source's"},
		{keyMaxBudget, "the budget of a part is taken out of its source's"},
	} {
		if has(data, c.key) {
			return errorf(wire.E10, "", "%s is for R alone: %s", c.key, c.why)
		}
	}
	if err := rejectFacts(data); err != nil {
		return err
	}
	if _, err := parseAttempts(sub, data); err != nil {
		return err
	}
	return parseUnanswered(sub, data)
}
