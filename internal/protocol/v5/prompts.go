package v5

import (
	"bytes"
	"context"
	"embed"
	"slices"
	"strings"
	"text/template"

	"comet/internal/errs"
	"comet/models"
)

//go:embed prompts/*.txt
var promptFiles embed.FS

// promptData is what a prompt is filled in with.
type promptData struct {
	// Address and Caps are the agent's whose prompt it is, "" where there is none.
	Address, Caps string
	// Analyst is another worker for what a research agent does not do itself.
	Analyst string
	Workers []promptWorker
}

type promptWorker struct{ Address, Name, State, Caps string }

// maxPromptWorkers is how many workers a prompt lists.
const maxPromptWorkers = 200

// Prompt is one of the system prompts of PROTOCOL_V5 §13, “orchestrator”, “worker” or
// “research”, filled in with the live registry. language is “fr”, as documented with the
// decided corrections, or “en”; agentID is whom it is for, "" for nobody in particular.
// The error is errs.NotFound for a name, a language or an agent that there is not.
func (p *Protocol) Prompt(ctx context.Context, name, language, agentID string) (string, error) {
	text, err := promptFiles.ReadFile("prompts/" + name + "." + language + ".txt")
	if err != nil || strings.ContainsAny(name+language, "/.") {
		return "", errs.New(errs.NotFound, "there is no prompt %q in the language %q; there are orchestrator, worker and research in fr and en", name, language)
	}
	page, err := template.New(name).Parse(string(text))
	if err != nil {
		return "", err
	}
	data, err := p.newPromptData(ctx, name, agentID)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = page.Execute(&out, data)
	return out.String(), err
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
	workers, err := p.orchestrator.Workers(ctx, "", maxPromptWorkers)
	for _, w := range workers {
		if err != nil {
			break
		}
		err = p.addWorker(ctx, &data, name, w, agentID)
	}
	return data, err
}

// The capabilities by which the prompt of a research agent finds whom it is about.
const (
	searchCapability   = "web_search"
	analysisCapability = "data_analysis"
)

// addWorker lists a worker that is there. The prompt of a research agent that is for nobody
// in particular is for the first one that searches.
func (p *Protocol) addWorker(ctx context.Context, data *promptData, name string, w models.Worker, agentID string) error {
	if w.State == models.WorkerOffline {
		return nil
	}
	agent, err := p.orchestrator.Agent(ctx, w.AgentID)
	if err != nil || !agent.IsActive {
		return err
	}
	address, err := p.agentAddress(ctx, w.AgentID)
	if err != nil {
		return err
	}
	data.Workers = append(data.Workers, promptWorker{address.String(), agent.Name, string(w.State), capabilityList(agent)})
	switch {
	case name == "research" && agentID == "" && data.Address == "" && hasCapability(agent, searchCapability):
		data.Address, data.Caps = address.String(), capabilityList(agent)
	case w.AgentID != agentID && data.Analyst == "" && hasCapability(agent, analysisCapability):
		data.Analyst = address.String() + "-ANALYST"
	}
	return nil
}

func hasCapability(a models.Agent, capability string) bool {
	return slices.ContainsFunc(a.Capabilities, func(c string) bool { return models.CapabilityKey(c) == capability })
}

// capabilityList is what an agent offers, as a join declares it.
func capabilityList(a models.Agent) string {
	names := make([]string, len(a.Capabilities))
	for i, c := range a.Capabilities {
		names[i] = models.CapabilityKey(c)
	}
	return strings.Join(names, ",")
}
