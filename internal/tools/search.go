package tools

import (
	"context"
	"encoding/json"
	"math"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/errs"
	"comet/internal/toolsearch"
	"comet/models"
)

// searchSchema is the input schema of agentcards:search_tools (AgentCards,
// “agentcards:search_tools”); include_stubs is an addition of comet.
const searchSchema = `{"type":"object","properties":{
"query":{"type":"string","minLength":1,"maxLength":2000,"description":"What you want to do, in your own words"},
"limit":{"type":"integer","minimum":1,"maximum":100,"default":5,"description":"Maximum number of tools"},
"include_related":{"type":"boolean","default":false,"description":"Also return tools that are used together with those found"},
"context_tools":{"type":"array","items":{"type":"string"},"maxItems":100,"description":"Tools you have already used; tools used together with them rank higher"},
"include_stubs":{"type":"boolean","default":false,"description":"Add a TypeScript declaration of each tool"}},
"required":["query"],"additionalProperties":false}`

// searchToolName is the name of the search tool.
const searchToolName = "search_tools"

// SearchQuery is the input of agentcards:search_tools.
type SearchQuery struct {
	Query          string   `json:"query"`
	Limit          *int     `json:"limit,omitempty"`
	IncludeRelated bool     `json:"include_related"`
	ContextTools   []string `json:"context_tools,omitempty"`
	IncludeStubs   bool     `json:"include_stubs"`
} // @name ToolSearchQuery

// SearchResult is the output of agentcards:search_tools (AgentCards, “agentcards:search_tools”).
type SearchResult struct {
	Tools []SearchMatch `json:"tools"`
	Meta  SearchMeta    `json:"meta"`
} // @name ToolSearchResult

// SearchMatch is a tool that was found. Scores are in 0…1 with three decimals.
type SearchMatch struct {
	Name          string           `json:"name" example:"filesystem:read_file"`
	Score         float64          `json:"score" example:"0.92"`
	Description   string           `json:"description" example:"Read file contents"`
	SemanticScore float64          `json:"semantic_score" example:"0.92"` // Score of the text.
	GraphScore    float64          `json:"graph_score" example:"0"`       // Proximity to context_tools in the usage graph.
	Related       bool             `json:"related" example:"false"`       // Found by the usage graph and not by the text.
	RelatedTools  []string         `json:"related_tools" example:"filesystem:list_directory"`
	Class         models.ToolClass `json:"class" swaggertype:"string" enums:"read,write,destructive" example:"read"`
	// Name in tools/list.
	Listed string `json:"listed_name" example:"filesystem__read_file"`
	// TypeScript declaration, with include_stubs.
	Stub string `json:"stub,omitempty" example:"filesystem.read_file(args: { path: string }): Promise<any>"`
} // @name ToolMatch

// SearchMeta describes how the result was computed.
type SearchMeta struct {
	Alpha      float64 `json:"alpha" example:"1"`     // Weight of the text; the graph has the rest.
	Density    float64 `json:"density" example:"0.1"` // Density of the usage graph.
	Total      int     `json:"total_tools" example:"128"`
	TookMS     float64 `json:"took_ms" example:"0.4"`
	Embeddings string  `json:"embeddings,omitempty" example:"used"`
} // @name ToolSearchMeta

// searchTools executes agentcards:search_tools.
func (svc *Service) searchTools(ctx context.Context, c *call) (*mcp.CallToolResult, error) {
	var q SearchQuery
	if err := c.decodeArguments(&q); err != nil {
		return nil, err
	}
	found, err := svc.search(ctx, c.policy, q)
	if err != nil {
		return nil, err
	}
	return jsonResult(found)
}

// Search calls agentcards:search_tools for the REST API, with the same checks, charge and audit
// record as any call.
func (svc *Service) Search(ctx context.Context, by Caller, q SearchQuery) (found SearchResult, err error) {
	args, err := json.Marshal(q)
	if err != nil {
		return found, err
	}
	res, err := svc.Call(ctx, by, toolID(agentCardsServer, searchToolName), args, nil)
	if err != nil {
		return found, err
	}
	text, _ := res.StructuredContent.(json.RawMessage)
	return found, json.Unmarshal(text, &found)
}

func (svc *Service) search(ctx context.Context, policy *policy, q SearchQuery) (SearchResult, error) {
	limit := toolsearch.DefaultLimit
	if q.Limit != nil {
		if limit = *q.Limit; limit < 1 || limit > toolsearch.MaxLimit {
			return SearchResult{}, badParameters("limit must be 1 to %d, not %d", toolsearch.MaxLimit, limit)
		}
	}
	all := svc.catalogue.Load()
	used := make([]string, len(q.ContextTools))
	for i, name := range q.ContextTools { // a listed name is accepted too
		if used[i] = name; all.find(name) != nil {
			used[i] = all.find(name).id
		}
	}
	answer, err := svc.index.Search(ctx, toolsearch.Query{
		Text: q.Query, Limit: limit, ContextTools: used, IncludeRelated: q.IncludeRelated,
		Allowed: func(id string) bool { t := all.find(id); return t != nil && t.visibleTo(policy) },
	})
	if errs.Is(err, errs.InvalidRequest) {
		return SearchResult{}, badParameters("%s", detailOf(err))
	}
	if err != nil {
		return SearchResult{}, err
	}
	out := SearchResult{Tools: []SearchMatch{}, Meta: SearchMeta{
		Alpha: answer.Meta.Alpha, Density: rounded(answer.Meta.Density), Total: len(all.visible(policy)),
		TookMS: rounded(float64(answer.Meta.Took.Microseconds()) / 1000), Embeddings: answer.Meta.Embeddings,
	}}
	for _, hit := range answer.Hits {
		t := all.find(hit.ID)
		f := SearchMatch{
			Name: hit.ID, Score: rounded(hit.Score), Description: hit.Description, SemanticScore: rounded(hit.SemanticScore), GraphScore: rounded(hit.GraphScore),
			Related: hit.Related, RelatedTools: hit.RelatedTools, Class: t.class, Listed: t.listed,
		}
		if f.RelatedTools == nil {
			f.RelatedTools = []string{}
		}
		if q.IncludeStubs && t.server != agentCardsServer { // code cannot call the tool that runs it
			f.Stub = stubOf(t)
		}
		out.Tools = append(out.Tools, f)
	}
	return out, nil
}

func rounded(f float64) float64 { return math.Round(f*1000) / 1000 }

const (
	// maxSequences is how many clients are tracked, and sequenceGap the pause after which a
	// client's next call begins a new sequence.
	maxSequences = 2000
	sequenceGap  = 5 * time.Minute
)

// callSequences tracks which tools a client calls one after the other, for the usage graph of the
// search (AgentCards, search_tools).
type callSequences struct{ last *lru.Cache[string, lastCall] }

type lastCall struct {
	tool string
	at   time.Time
}

func newCallSequences() *callSequences {
	last, err := lru.New[string, lastCall](maxSequences)
	if err != nil {
		panic(err) // only for a size that is not positive
	}
	return &callSequences{last}
}

// note adds a successful call and reports it together with the previous one.
func (r *callSequences) note(by Caller, tool string, report func(tools []string)) {
	key := by.Session
	if key == "" {
		key = by.Principal.TokenID
	}
	now := time.Now()
	before, ok := r.last.Get(key)
	r.last.Add(key, lastCall{tool, now})
	if ok && before.tool != tool && now.Sub(before.at) < sequenceGap {
		report([]string{before.tool, tool})
	}
}

// recordRun adds tools that were used together to the usage graph.
func (svc *Service) recordRun(tools []string) {
	if err := svc.index.Record(context.Background(), tools, true); err != nil {
		svc.log.Debug("record a run in the usage graph", "error", err)
	}
}
