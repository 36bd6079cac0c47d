package v5

import (
	"slices"
	"strconv"
	"strings"

	"comet/internal/orchestrator"
	wire "comet/internal/wire/v5"
	"comet/models"
)

// parseOptions reads what a request decides beforehand: what becomes of a question that nobody
// answers, how many workers do it at a time, and what follows where the budget does not
// cover it (PROTOCOL_V5 §5.1, §7.2, §9.2).
func parseOptions(sub *orchestrator.Submission, data wire.Data) (err error) {
	if err = parseUnanswered(sub, data); err != nil {
		return err
	}
	n, err := parseWorkers(data)
	if err != nil {
		return err
	}
	if sub.Override.Workers = n; n != 0 && sub.AgentID != "" {
		return errorf(wire.E10, "", "parallel asks several workers, and one is named")
	}
	if sub.Budget != nil && *sub.Budget < int64(n) {
		return codedError{code: wire.E17, needed: int64(n), have: *sub.Budget} // one token for each
	}
	sub.Override.Overrun, err = parseOverrun(data, sub.Budget)
	return err
}

// parseUnanswered reads what becomes of a question that nobody answers.
func parseUnanswered(sub *orchestrator.Submission, data wire.Data) error {
	text, err := wordPair(data, keyUnanswered, "first", "abandon")
	if err == nil && text != "" {
		sub.Override.UseFirstOption = new(text == "first")
	}
	return err
}

// wordPair reads a word of DATA, "" where there is none.
func wordPair(data wire.Data, key string, words ...string) (string, error) {
	text, ok := data.Get(key)
	if ok && !slices.Contains(words, text) {
		return "", errorf(wire.E10, "", "%s must be %s, not %s", key, orList(words), text)
	}
	return text, nil
}

// orList is a list in words: first, all or merge.
func orList(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// parseWorkers reads how many workers do the work at the same time, 0 for one. The first success
// is the result (PROTOCOL_V5 §4.2, §5.1); no other aggregation is supported.
func parseWorkers(data wire.Data) (int, error) {
	how, aggregates := data.Get(keyAggregate)
	if aggregates && how != aggregateFirst {
		return 0, errorf(wire.E10, "", "aggregate must be %s, not %s: no other aggregation is supported", aggregateFirst, how)
	}
	n, err := intPair(data, keyParallel, 1, orchestrator.MaxParallel, 1)
	if err != nil || n > 1 {
		return n, err
	}
	if aggregates {
		return 0, errorf(wire.E10, "", "aggregate needs parallel=, 2 to %d workers", orchestrator.MaxParallel)
	}
	return 0, nil
}

// parseOverrun reads what follows an E17, nil where nothing does.
func parseOverrun(data wire.Data, budget *int64) (*models.Overrun, error) {
	var words []string
	for _, a := range models.OverrunActions() {
		words = append(words, string(a))
	}
	action, err := wordPair(data, keyOnBudget, words...)
	if err != nil {
		return nil, err
	}
	most, limited := data.Get(keyMaxBudget)
	switch {
	case limited && action != string(models.OverrunRaise):
		return nil, errorf(wire.E10, "", "max_budget needs on_budget=raise")
	case action == "":
		return nil, nil //nolint:nilnil // nothing follows
	case action == string(models.OverrunRaise) && budget == nil:
		return nil, errorf(wire.E10, "", "on_budget=raise needs a BUDGET to raise, not -")
	}
	out := &models.Overrun{Action: models.OverrunAction(action)}
	if limited {
		out.MaxBudget, err = strconv.ParseInt(most, 10, 64)
		if err != nil || out.MaxBudget < 1 || out.MaxBudget > models.MaxTokens {
			return nil, errorf(wire.E10, "", "max_budget must be a number of tokens, not %s", most)
		}
		if out.MaxBudget < *budget { // there is one: only raise takes the pair
			return nil, errorf(wire.E10, "", "max_budget must not be less than BUDGET, %d", *budget)
		}
	}
	return out, nil
}
