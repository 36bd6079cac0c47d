package v5

import (
	"slices"
	"strconv"
	"strings"

	"comet/internal/orchestrator"
	wire "comet/internal/wire/v5"
	"comet/models"
)

// choices reads what a request decides beforehand: what becomes of a question that nobody
// answers, how many workers do it at a time, and what follows where the budget does not
// cover it (PROTOCOL_V5 §5.1, §7.2, §9.2).
func choices(sub *orchestrator.Submission, data wire.Data) (err error) {
	if err = unanswered(sub, data); err != nil {
		return err
	}
	n, err := workersIn(data)
	if err != nil {
		return err
	}
	if sub.Override.Workers = n; n != 0 && sub.Agent != "" {
		return refuse(wire.E10, "", "parallel asks several workers, and one is named")
	}
	if sub.Budget != nil && *sub.Budget < int64(n) {
		return refusal{code: wire.E17, needed: int64(n), have: *sub.Budget} // one token for each
	}
	sub.Override.Overrun, err = overrunOf(data, sub.Budget)
	return err
}

// unanswered reads what becomes of a question that nobody answers.
func unanswered(sub *orchestrator.Submission, data wire.Data) error {
	text, err := oneOf(data, keyUnanswered, "first", "abandon")
	if err == nil && text != "" {
		sub.Override.FirstOption = new(text == "first")
	}
	return err
}

// oneOf reads a word of DATA, "" where there is none.
func oneOf(data wire.Data, key string, words ...string) (string, error) {
	text, ok := data.Get(key)
	if ok && !slices.Contains(words, text) {
		return "", refuse(wire.E10, "", "%s must be %s, not %s", key, listed(words), text)
	}
	return text, nil
}

// listed is a list in words: first, all or merge.
func listed(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// workersIn reads how many workers do the work at the same time, 0 for one. The first success
// is the result (PROTOCOL_V5 §4.2, §5.1); no other aggregation is supported.
func workersIn(data wire.Data) (int, error) {
	how, aggregates := data.Get(keyAggregate)
	if aggregates && how != aggregateFirst {
		return 0, refuse(wire.E10, "", "aggregate must be %s, not %s: no other aggregation is supported", aggregateFirst, how)
	}
	n, err := numberIn(data, keyParallel, 1, orchestrator.MaxParallel, 1)
	if err != nil || n > 1 {
		return n, err
	}
	if aggregates {
		return 0, refuse(wire.E10, "", "aggregate needs parallel=, 2 to %d workers", orchestrator.MaxParallel)
	}
	return 0, nil
}

// overrunOf reads what follows an E17, nil where nothing does.
func overrunOf(data wire.Data, budget *int64) (*models.Overrun, error) {
	var words []string
	for _, a := range models.OverrunActions() {
		words = append(words, string(a))
	}
	action, err := oneOf(data, keyOnBudget, words...)
	if err != nil {
		return nil, err
	}
	most, limited := data.Get(keyMaxBudget)
	switch {
	case limited && action != string(models.OverrunRaise):
		return nil, refuse(wire.E10, "", "max_budget needs on_budget=raise")
	case action == "":
		return nil, nil //nolint:nilnil // nothing follows
	case action == string(models.OverrunRaise) && budget == nil:
		return nil, refuse(wire.E10, "", "on_budget=raise needs a BUDGET to raise, not -")
	}
	out := &models.Overrun{Action: models.OverrunAction(action)}
	if limited {
		out.MaxBudget, err = strconv.ParseInt(most, 10, 64)
		if err != nil || out.MaxBudget < 1 || out.MaxBudget > models.MaxTokens {
			return nil, refuse(wire.E10, "", "max_budget must be a number of tokens, not %s", most)
		}
		if out.MaxBudget < *budget { // there is one: only raise takes the pair
			return nil, refuse(wire.E10, "", "max_budget must not be less than BUDGET, %d", *budget)
		}
	}
	return out, nil
}
