package tools

import (
	"context"
	"encoding/json"
	"math"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/errs"
	"comet/internal/toolsearch"
	"comet/models"
)

// searchSchema is what agentcards:search_tools takes (AgentCards, “agentcards:search_tools”);
// include_stubs is comet's own.
const searchSchema = `{"type":"object","properties":{
"query":{"type":"string","minLength":1,"maxLength":2000,"description":"What you want to do, in your own words"},
"limit":{"type":"integer","minimum":1,"maximum":100,"default":5,"description":"How many tools to return at most"},
"include_related":{"type":"boolean","default":false,"description":"Also tools that are used together with those found"},
"context_tools":{"type":"array","items":{"type":"string"},"maxItems":100,"description":"Tools you have used already; those used with them come earlier"},
"include_stubs":{"type":"boolean","default":false,"description":"Add a TypeScript declaration of each tool"}},
"required":["query"],"additionalProperties":false}`

// searchToolName is the name of the tool that finds others.
const searchToolName = "search_tools"

// SearchQuery is what agentcards:search_tools is asked.
type SearchQuery struct {
	Query          string   `json:"query"`
	Limit          *int     `json:"limit,omitempty"`
	IncludeRelated bool     `json:"include_related"`
	ContextTools   []string `json:"context_tools,omitempty"`
	IncludeStubs   bool     `json:"include_stubs"`
} // @name ToolSearchQuery

// Found is what a search found (AgentCards, “agentcards:search_tools”).
type Found struct {
	Tools []FoundTool `json:"tools"`
	Meta  FoundMeta   `json:"meta"`
} // @name ToolSearchResult

// FoundTool is one of the tools. Scores are 0 to 1, with three digits.
type FoundTool struct {
	Name          string           `json:"name" example:"filesystem:read_file"`
	Score         float64          `json:"score" example:"0.92"`
	Description   string           `json:"description" example:"Read file contents"`
	SemanticScore float64          `json:"semantic_score" example:"0.92"` // What the text is worth.
	GraphScore    float64          `json:"graph_score" example:"0"`       // What the use together with context_tools is worth.
	Related       bool             `json:"related" example:"false"`       // Not found by the text, but used with what was.
	RelatedTools  []string         `json:"related_tools" example:"filesystem:list_directory"`
	Class         models.ToolClass `json:"class" swaggertype:"string" enums:"read,write,destructive" example:"read"`
	// Listed is the name it has in tools/list, which clients that know only listed tools call.
	Listed string `json:"listed_name" example:"filesystem__read_file"`
	// A TypeScript declaration, where include_stubs asks for it.
	Stub string `json:"stub,omitempty" example:"filesystem.read_file(args: { path: string }): Promise<any>"`
} // @name ToolMatch

// FoundMeta says how the answer came about.
type FoundMeta struct {
	Alpha      float64 `json:"alpha" example:"1"`     // How much the text counts; the graph counts the rest.
	Density    float64 `json:"density" example:"0.1"` // How much of the usage graph there is.
	Total      int     `json:"total_tools" example:"128"`
	TookMS     float64 `json:"took_ms" example:"0.4"`
	Embeddings string  `json:"embeddings,omitempty" example:"used"`
} // @name ToolSearchMeta

// searchTools is agentcards:search_tools.
func (h *Service) searchTools(ctx context.Context, c *call) (*mcp.CallToolResult, error) {
	var q SearchQuery
	if err := c.decodeArguments(&q); err != nil {
		return nil, err
	}
	found, err := h.search(ctx, c.policy, q)
	if err != nil {
		return nil, err
	}
	return jsonResult(found)
}

// Search is a call of agentcards:search_tools by a door that knows what it asks: authorised,
// charged and written down as any other.
func (h *Service) Search(ctx context.Context, by Caller, q SearchQuery) (found Found, err error) {
	args, err := json.Marshal(q)
	if err != nil {
		return found, err
	}
	res, err := h.Call(ctx, by, toolID(agentCardsServer, searchToolName), args, nil)
	if err != nil {
		return found, err
	}
	text, _ := res.StructuredContent.(json.RawMessage)
	return found, json.Unmarshal(text, &found)
}

func (h *Service) search(ctx context.Context, may *policy, q SearchQuery) (Found, error) {
	limit := toolsearch.DefaultLimit
	if q.Limit != nil {
		if limit = *q.Limit; limit < 1 || limit > toolsearch.MaxLimit {
			return Found{}, badParameters("limit must be 1 to %d, not %d", toolsearch.MaxLimit, limit)
		}
	}
	all := h.catalogue.Load()
	used := make([]string, len(q.ContextTools))
	for i, name := range q.ContextTools { // a listed name means the tool too
		if used[i] = name; all.find(name) != nil {
			used[i] = all.find(name).id
		}
	}
	answer, err := h.index.Search(ctx, toolsearch.Query{
		Text: q.Query, Limit: limit, ContextTools: used, IncludeRelated: q.IncludeRelated,
		Allowed: func(id string) bool { t := all.find(id); return t != nil && t.visibleTo(may) },
	})
	if errs.Is(err, errs.InvalidRequest) {
		return Found{}, badParameters("%s", detailOf(err))
	}
	if err != nil {
		return Found{}, err
	}
	out := Found{Tools: []FoundTool{}, Meta: FoundMeta{
		Alpha: answer.Meta.Alpha, Density: rounded(answer.Meta.Density), Total: len(all.visible(may)),
		TookMS: rounded(float64(answer.Meta.Took.Microseconds()) / 1000), Embeddings: answer.Meta.Embeddings,
	}}
	for _, hit := range answer.Hits {
		t := all.find(hit.ID)
		f := FoundTool{
			Name: hit.ID, Score: rounded(hit.Score), Description: hit.Description, SemanticScore: rounded(hit.SemanticScore), GraphScore: rounded(hit.GraphScore),
			Related: hit.Related, RelatedTools: hit.RelatedTools, Class: t.class, Listed: t.listed,
		}
		if f.RelatedTools == nil {
			f.RelatedTools = []string{}
		}
		if q.IncludeStubs && t.server != agentCardsServer { // code cannot call what runs it
			f.Stub = stubOf(t)
		}
		out.Tools = append(out.Tools, f)
	}
	return out, nil
}

func rounded(f float64) float64 { return math.Round(f*1000) / 1000 }
