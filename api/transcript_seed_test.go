package api_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/input"
	"comet/internal/usage"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// readOptions reads the section "options", one a line: strict_capabilities,
// loopback, work, or rate_limit and a number.
func readOptions(t *testing.T, archive *txtar.Archive) fixtureOptions {
	t.Helper()
	var opts fixtureOptions
	for _, section := range archive.Files {
		if section.Name != "options" {
			continue
		}
		for line := range strings.Lines(string(section.Data)) {
			var err error
			switch name, value, _ := strings.Cut(strings.TrimSpace(line), " "); name {
			case "":
			case "strict_capabilities":
				opts.strictCapabilities = true
			case "loopback":
				opts.loopback = true
			case "work":
				opts.startOrchestrator = true
			case "rate_limit":
				opts.rateLimit, err = strconv.Atoi(value)
			default:
				err = fmt.Errorf("there is no option %q", name)
			}
			require.NoError(t, err)
		}
	}
	return opts
}

// seed runs the lines of a section that prepares the data of a rule, as the principal system
// and without the API:
//
//	agent {…}                            creates an agent
//	inactive ID                          deactivates it
//	fill N                               adds agents until there are N
//	token NAME SCOPE[,SCOPE] [AGENT]     issues a token; <NAME> is its secret
//	usage ID TOKENS                      records what an agent used
//	tamper PATH TOKENS                   adds tokens to the hour's window without a fact
//	outcomes ID SESSIONS N SUCCESSES MS  records N outcomes, all of that duration
//	clock DURATION                       lets time pass
//	receiver NAME STATUS[,STATUS]        starts a server that gives these answers, the
//	                                     last one for ever; <NAME> is its URL
//	deliver                              makes every attempt at a delivery that is due
//
// and, with the option "work", actions of agents and timers, in which $1 to $9 are the stored
// values:
//
//	worker ID [OUTPUT]                   executes all its tasks, with that output
//	join ID CONCURRENCY                     connects a worker that is controlled by
//	accept ID TASK                       accepts a task
//	progress ID TASK PERCENT [LOG]       reports progress
//	complete ID TASK [OUTPUT]            reports success
//	fail ID TASK FAILURE TEXT            reports a failure
//	ask ID TASK QUESTION                 asks a question; its options are "yes" and "no"
//	ended TASK                           waits for the end of a task
func (p *transcriptPlayer) seed(text string) {
	p.t.Helper()
	for line := range strings.Lines(text) {
		command, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		words := strings.Fields(rest)
		switch {
		case command == "" || command == "#":
		case command == "agent":
			p.seedAgent(rest)
		case command == "inactive" && len(words) == 1:
			require.NoError(p.t, p.h.registry.Deactivate(p.t.Context(), models.System(), words[0], nil))
		case command == "fill" && len(words) == 1:
			p.fillRegistry(p.number(words[0]))
		case command == "token" && len(words) >= 2:
			p.seedToken(words)
		case command == "usage" && len(words) == 2:
			p.seedUsage(words[0], int64(p.number(words[1])))
		case command == "tamper" && len(words) == 2:
			p.tamper(words[0], int64(p.number(words[1])))
		case command == "outcomes" && len(words) == 5:
			p.seedOutcomes(words[0], p.number(words[1]), p.number(words[2]), p.number(words[3]), p.number(words[4]))
		case command == "receiver" && len(words) == 2:
			p.seedReceiver(words[0], words[1])
		case command == "deliver":
			p.seedDeliver()
		case command == "clock" && len(words) == 1:
			d, err := time.ParseDuration(words[0])
			require.NoError(p.t, err)
			p.h.db.Clock.Advance(d)
		case !p.seedWork(command, strings.Fields(p.fill(rest))):
			require.Fail(p.t, "a seed that is not understood", line)
		}
	}
}

func (p *transcriptPlayer) number(word string) int {
	p.t.Helper()
	n, err := strconv.Atoi(word)
	require.NoError(p.t, err)
	return n
}

func (p *transcriptPlayer) seedAgent(text string) {
	p.t.Helper()
	var d models.AgentDraft
	require.NoError(p.t, input.DecodeJSON([]byte(text), &d), text)
	_, err := p.h.registry.Create(p.t.Context(), models.System(), d, nil)
	require.NoError(p.t, err, text)
}

// fillRegistry adds specialists of one sphere after another.
func (p *transcriptPlayer) fillRegistry(n int) {
	p.t.Helper()
	page, err := p.h.registry.List(p.t.Context(), store.AgentQuery{Sort: "id", Limit: 1, Count: true})
	require.NoError(p.t, err)
	parents := []string{"orch-personnel", "orch-business", "orch-government"}
	for i := int(*page.Total); i < n; i++ {
		_, err := p.h.registry.Create(p.t.Context(), models.System(), models.AgentDraft{
			ID: new(fmt.Sprintf("specialist-%03d", i)), Name: new(fmt.Sprintf("Specialist %d", i)), Level: new(models.LevelSpecialist),
			SphereID: new(i%3 + 1), FrequencyHz: new(555), ParentID: &parents[i%3],
		}, nil)
		require.NoError(p.t, err)
	}
}

func (p *transcriptPlayer) seedToken(words []string) {
	p.t.Helper()
	d := auth.TokenDraft{Name: &words[0]}
	for scope := range strings.SplitSeq(words[1], ",") {
		d.Scopes = append(d.Scopes, models.Scope(scope))
	}
	if len(words) > 2 {
		d.AgentID = &words[2]
	}
	issued, err := p.h.auth.Create(p.t.Context(), models.System(), d, nil)
	require.NoError(p.t, err)
	p.secrets[words[0]], p.ids[words[0]+".id"] = issued.Secret, issued.Token.ID
}

func (p *transcriptPlayer) seedUsage(id string, tokens int64) {
	p.t.Helper()
	_, err := p.h.ledger.Record(p.t.Context(), id, []usage.FactDraft{{Tokens: &tokens}}, nil)
	require.NoError(p.t, err)
}

// tamper makes the sums of the ledger inconsistent. path is the path from nova to the agent.
func (p *transcriptPlayer) tamper(path string, tokens int64) {
	p.t.Helper()
	require.NoError(p.t, p.h.db.Write(p.t.Context(), func(tx *store.Tx) error {
		return storetest.AddUsage(tx, path[strings.LastIndexByte(path, '/')+1:], path, tx.Now(), tokens)
	}))
}

func (p *transcriptPlayer) seedOutcomes(id string, sessions, n, successes, milliseconds int) {
	p.t.Helper()
	require.NoError(p.t, p.h.db.Write(p.t.Context(), func(tx *store.Tx) error {
		rows := make([]store.OutcomeRow, n)
		for i := range rows {
			rows[i] = store.OutcomeRow{
				AgentID: id, SessionID: fmt.Sprintf("session-%d", i%sessions), Status: "failed", DurationMS: new(int64(milliseconds)), At: tx.Now(),
			}
			if i < successes {
				rows[i].Status = "success"
			}
		}
		return tx.Agents().AddOutcomes(rows)
	}))
}
