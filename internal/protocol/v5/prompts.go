package v5

import (
	"context"
	"embed"
	"slices"
	"strings"

	"comet/internal/errs"
	"comet/internal/template"
	wire "comet/internal/wire/v5"
	"comet/models"
)

//go:embed prompts/*.txt
var promptFiles embed.FS

// The capabilities that select the workers in the prompt of a research agent.
const (
	searchCapability   = "web_search"
	analysisCapability = "data_analysis"
)

// maxPromptWorkers is the number of workers that a prompt lists.
const maxPromptWorkers = 200

// promptData is the data of a prompt's template.
type promptData struct {
	// Address and Caps are those of the agent whose prompt it is, "" for none.
	Address, Caps string
	// Analyst is another worker, for analyses that a research agent hands off.
	Analyst string
	Workers []promptWorker
}

type promptWorker struct{ Address, Name, State, Caps, Desc string }

// Prompt returns a system prompt of PROTOCOL_V5 §13, “orchestrator”, “worker” or “research”,
// filled in with the live registry. language is “fr”, the documented text with the decided
// corrections, or “en”; agentID is the agent whose prompt it is, "" for none. The error is
// errs.NotFound for an unknown name, language or agent.
//
//	@Summary		Get a system prompt
//	@Description	Returns one of the three system prompts of PROTOCOL_V5 §13, filled in with the registered agents. For a token bound to an agent, the worker prompt is that agent's.
//	@ID				getPrompt
//	@Produce		plain
//	@Param			name	path	string	true	"The role"	enums(orchestrator,worker,research)	example(worker)
//	@Param			lang	query	string	false	"The language"	enums(fr,en)	default(fr)	example(en)
//	@Success		200	{string}	string	"The prompt"
//	@Failure		404	{string}	string	"E40: the prompt does not exist"
//	@Router			/api/v5/prompts/{name} [get]
func (p *Protocol) Prompt(ctx context.Context, name, language, agentID string) (string, error) {
	text, err := promptFiles.ReadFile("prompts/" + name + "." + language + ".txt")
	if err != nil || strings.ContainsAny(name+language, "/.") {
		return "", errs.New(errs.NotFound, "there is no prompt %q in the language %q; the prompts are orchestrator, worker and research, in fr and en", name, language)
	}
	data, err := p.newPromptData(ctx, name, agentID)
	if err != nil {
		return "", err
	}
	return template.Execute(string(text), data, nil)
}

func (p *Protocol) newPromptData(ctx context.Context, name, agentID string) (data promptData, err error) {
	if agentID != "" {
		agent, err := p.orchestrator.Agent(ctx, agentID)
		if err != nil {
			return data, err
		}
		address, err := p.agentAddress(ctx, agentID)
		if err != nil {
			return data, err
		}
		data.Address, data.Caps = address.String(), capabilityList(agent)
	}
	workers, err := p.orchestrator.Workers(ctx, "", "", maxPromptWorkers)
	if err != nil {
		return data, err
	}
	for _, w := range workers {
		if w.State == models.WorkerOffline {
			continue
		}
		agent, err := p.orchestrator.Agent(ctx, w.AgentID)
		if err != nil {
			return data, err
		}
		if !agent.IsActive {
			continue
		}
		address, err := p.agentAddress(ctx, w.AgentID)
		if err != nil {
			return data, err
		}
		data.addWorker(name, agentID, w, agent, address)
	}
	return data, nil
}

// addWorker lists a worker. The research prompt without an agent is that of the first worker that
// searches.
func (data *promptData) addWorker(name, agentID string, w models.Worker, agent models.Agent, address wire.Address) {
	desc, _ := new(wire.Writer).Text("desc", agent.Description).Data() // on one line
	data.Workers = append(data.Workers, promptWorker{address.String(), agent.Name, string(w.State), capabilityList(agent), string(desc)})
	switch {
	case name == "research" && agentID == "" && data.Address == "" && hasCapability(agent, searchCapability):
		data.Address, data.Caps = address.String(), capabilityList(agent)
	case w.AgentID != agentID && data.Analyst == "" && hasCapability(agent, analysisCapability):
		data.Analyst = address.String() + "-ANALYST"
	}
}

func hasCapability(a models.Agent, capability string) bool {
	return slices.ContainsFunc(a.Capabilities, func(c string) bool { return models.CapabilityKey(c) == capability })
}

// capabilityList returns the capabilities of an agent as a join declares them.
func capabilityList(a models.Agent) string {
	names := make([]string, len(a.Capabilities))
	for i, c := range a.Capabilities {
		names[i] = models.CapabilityKey(c)
	}
	return strings.Join(names, ",")
}
