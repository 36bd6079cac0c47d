package registry_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"comet/internal/errs"
	"comet/internal/registry"
	"comet/models"
)

// scaled makes a model test shorter where the run is to be short or is slow.
func scaled(n int) int {
	if testing.Short() {
		n /= 8
	}
	return n / costly
}

type verb int

const (
	create verb = iota
	update
	remove
	load
)

// operation is one random request to the registry.
type operation struct {
	verb  verb
	by    models.Principal
	draft models.AgentDraft   // create
	id    string              // update, remove
	patch registry.AgentPatch // update
	// at is the version that update and remove ask for; 0 asks for none.
	at      int64
	entries []rosterEntry // load
}

// rosterEntry is a draft with is_active.
type rosterEntry struct {
	models.AgentDraft
	active *bool
}

func (o operation) precondition() models.Precondition {
	if o.at == 0 {
		return nil
	}
	return func(version int64) error {
		if version != o.at {
			return errs.New(errs.PreconditionFailed, "at %d", version)
		}
		return nil
	}
}

func (o operation) String() string {
	switch o.verb {
	case create:
		return fmt.Sprintf("%s creates %s", o.by.Name, describe(o.draft))
	case update:
		return fmt.Sprintf("%s patches %s (at %d) with %+v", o.by.Name, o.id, o.at, o.patch)
	case remove:
		return fmt.Sprintf("%s deletes %s (at %d)", o.by.Name, o.id, o.at)
	default:
		return fmt.Sprintf("%s imports\n%s", o.by.Name, render(o.entries).text)
	}
}

func describe(d models.AgentDraft) string { return render([]rosterEntry{{AgentDraft: d}}).text }

// generator makes requests that collide often: few ids, whose first letter says
// which level they usually have, most of them sensible.
type generator struct{ *rand.Rand }

func newGenerator(seed, stream uint64) generator {
	return generator{rand.New(rand.NewPCG(seed, stream))}
}

// chance is true in percent of the calls.
func (g generator) chance(percent int) bool { return g.IntN(100) < percent }

func (g generator) id(level models.Level) string {
	switch level {
	case models.LevelSystem:
		return "nova"
	case models.LevelOrchestrator:
		return []string{"orch-social", "orch-business", "orch-scholar", "o-1", "o-2"}[g.IntN(5)]
	case models.LevelSpecialist:
		return "s-" + strconv.Itoa(g.IntN(16))
	default:
		return "a-" + strconv.Itoa(g.IntN(120))
	}
}

func (g generator) level() models.Level {
	switch n := g.IntN(100); {
	case n < 2:
		return models.LevelSystem
	case n < 10:
		return models.LevelOrchestrator
	case n < 45:
		return models.LevelSpecialist
	default:
		return models.LevelAssistant
	}
}

func (g generator) anyID() string {
	if g.chance(2) {
		return "no-such-agent"
	}
	return g.id(g.level())
}

func (g generator) principal() models.Principal {
	if g.chance(40) {
		return admin()
	}
	return writer()
}

// parent is one for an agent of the level; odd is how often, in percent, it is
// one that does not fit.
func (g generator) parent(level models.Level, odd int) string {
	switch {
	case g.chance(odd):
		return g.anyID()
	case g.IntN(100*20) < odd:
		return "Not An Id"
	}
	return g.id(max(level, 1) - 1)
}

func (g generator) capabilities(odd int) []string {
	names := []string{"email", "plan", "custom:plan", "custom:x", "x", "custom:y", "chat"}
	g.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	names = names[:g.IntN(4)]
	if len(names) > 0 && g.chance(odd) {
		names = append(names, names[0])
	}
	return names
}

func (g generator) budget(level models.Level, odd int) int64 {
	most := int64(2000)
	if b := level.MaxBudget(); b != nil {
		most = *b
	}
	switch {
	case g.chance(odd):
		return most + 1 + g.Int64N(1000)
	case g.chance(odd):
		return g.Int64N(1000)
	}
	return 1000 + g.Int64N(most-999)
}

func (g generator) scope(level models.Level, odd int) models.BudgetScope {
	switch {
	case g.chance(odd):
		return "everything"
	case level == models.LevelSystem && !g.chance(odd) || g.chance(50):
		return models.ScopeOwn
	}
	return models.ScopeSubtree
}

// draft makes an agent; odd is how often, in percent, a member is not sensible.
func (g generator) draft(odd int) models.AgentDraft {
	level := g.level()
	id := g.id(level)
	d := models.AgentDraft{ID: &id, Name: new("Agent " + strconv.Itoa(g.IntN(3))), Level: &level, SphereID: new(1 + g.IntN(9))}
	frequencies := level.Frequencies()
	d.FrequencyHz = new(frequencies[int(id[len(id)-1])%len(frequencies)])
	if parent := g.parent(level, odd); level > 1 || g.chance(50) {
		d.ParentID = &parent
	}
	if g.chance(50) {
		d.TokenBudget = models.Some(g.budget(level, odd))
	}
	if g.chance(30) {
		d.BudgetScope = models.Some(g.scope(level, odd))
	}
	if g.chance(50) {
		d.Capabilities = g.capabilities(odd)
	}
	if g.chance(20) {
		d.Description = "text"
	}
	if level == models.LevelSystem && !g.chance(odd) {
		d.SphereID, d.ParentID, d.TokenBudget = nil, nil, models.Optional[int64]{}
	}
	if g.chance(odd) {
		*d.FrequencyHz = []int{0, 444, 555, 600, 666, 777, 888, 999}[g.IntN(8)]
	}
	if g.chance(odd) {
		switch g.IntN(6) {
		case 0:
			d.Name = nil
		case 1:
			d.Name = new(" ")
		case 2:
			d.SphereID = nil
		case 3:
			d.SphereID = new(10)
		case 4:
			d.ParentID = nil
		case 5:
			d.Level = new(models.Level(g.IntN(5)))
		}
	}
	return d
}

// optional makes a member that is there in percent of the calls, rarely null.
func optional[T any](g generator, percent int, value T) models.Optional[T] {
	if !g.chance(percent) {
		return models.Optional[T]{}
	}
	if g.chance(3) {
		return null[T]()
	}
	return models.Some(value)
}

func (g generator) patch(id string) registry.AgentPatch {
	level := map[byte]models.Level{'o': 1, 's': 2, 'a': 3}[id[0]] // nova and unknown agents do not matter
	p := registry.AgentPatch{
		Name:        optional(g, 30, "Agent "+strconv.Itoa(g.IntN(3))),
		Description: optional(g, 15, "text"), Type: optional(g, 10, "research"),
		Capabilities: optional(g, 20, g.capabilities(5)), SphereID: optional(g, 15, 1+g.IntN(9)),
		ParentID: optional(g, 25, g.parent(level, 10)), TokenBudget: optional(g, 20, g.budget(level, 8)),
		BudgetScope: optional(g, 15, g.scope(level, 5)), IsActive: optional(g, 30, g.chance(60)),
	}
	if g.chance(5) {
		p.Name = models.Some(" ")
	}
	if g.chance(10) {
		p.ID, p.Level = models.Some(id), optional(g, 50, level)
		p.FrequencyHz = optional(g, 50, []int{444, 555, 666}[g.IntN(3)])
	}
	return p
}

// operation makes a request that needs no knowledge of the tree.
func (g generator) operation() operation {
	o := operation{by: g.principal()}
	if g.chance(10) {
		o.at = 1 + g.Int64N(4)
	}
	switch n := g.IntN(100); {
	case n < 35:
		o.verb, o.draft = create, g.draft(6)
	case n < 70:
		o.verb, o.id = update, g.anyID()
		o.patch = g.patch(o.id)
	case n < 88:
		o.verb, o.id = remove, g.anyID()
	default:
		o.verb = load
		odd := []int{0, 0, 4}[g.IntN(3)]
		for range 1 + g.IntN(6) {
			e := rosterEntry{AgentDraft: g.draft(odd)}
			if g.chance(40) {
				e.active = new(*e.Level <= 1 && !g.chance(odd) || g.chance(50))
			}
			o.entries = append(o.entries, e)
		}
	}
	return o
}
