package builtin

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/errs"
	"comet/internal/tools"
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
	Query          string   `json:"query"`                   // The purpose of the tool, in English or French.
	Limit          *int     `json:"limit,omitempty"`         // Maximum number of tools.
	IncludeRelated bool     `json:"include_related"`         // Whether to add tools that are often used together with the matches.
	ContextTools   []string `json:"context_tools,omitempty"` // Ids of tools already in use, which raise the score of related tools.
	IncludeStubs   bool     `json:"include_stubs"`           // Whether to add the TypeScript signatures of the tools.
} // @name ToolSearchQuery

// SearchResult is the output of agentcards:search_tools (AgentCards, “agentcards:search_tools”).
type SearchResult struct {
	Tools []SearchMatch `json:"tools"` // The matching tools, best first.
	Meta  SearchMeta    `json:"meta"`
} // @name ToolSearchResult

// SearchMatch is a tool that was found. Scores are in 0…1 with three decimals.
type SearchMatch struct {
	Name          string           `json:"name" example:"filesystem:read_file"`                                      // The tool's id.
	Score         float64          `json:"score" example:"0.92"`                                                     // The total score, 0 to 1.
	Description   string           `json:"description" example:"Read file contents"`                                 // The tool's description.
	SemanticScore float64          `json:"semantic_score" example:"0.92"`                                            // Score of the text.
	GraphScore    float64          `json:"graph_score" example:"0"`                                                  // Proximity to context_tools in the usage graph.
	Related       bool             `json:"related" example:"false"`                                                  // Found by the usage graph and not by the text.
	RelatedTools  []string         `json:"related_tools" example:"filesystem:list_directory"`                        // Tools that are often used together with it.
	Class         models.ToolClass `json:"class" swaggertype:"string" enums:"read,write,destructive" example:"read"` // What the tool may do.
	// Name in tools/list.
	Listed string `json:"listed_name" example:"filesystem__read_file"`
	// TypeScript declaration, with include_stubs.
	Stub string `json:"stub,omitempty" example:"filesystem.read_file(args: { path: string }): Promise<any>"`
} // @name ToolMatch

// SearchMeta describes how the result was computed.
type SearchMeta struct {
	Alpha      float64 `json:"alpha" example:"1"`                   // Weight of the text; the graph has the rest.
	Density    float64 `json:"density" example:"0.1"`               // Density of the usage graph.
	Total      int     `json:"total_tools" example:"128"`           // Number of tools that were searched.
	TookMS     float64 `json:"took_ms" example:"0.4"`               // Duration of the search in milliseconds.
	Embeddings string  `json:"embeddings,omitempty" example:"used"` // Whether embeddings were used; absent if they are not configured.
} // @name ToolSearchMeta

// Search calls agentcards:search_tools for the REST API, and checks, charges and records it like any call.
func Search(ctx context.Context, svc *tools.Service, by tools.Caller, q SearchQuery) (found SearchResult, err error) {
	args, _ := json.Marshal(q) // its fields cannot fail
	res, err := svc.Call(ctx, by, agentCardsServer+":"+searchToolName, args, nil)
	if err != nil {
		return found, err
	}
	text, _ := res.StructuredContent.(json.RawMessage)
	return found, json.Unmarshal(text, &found)
}

// searchTools executes agentcards:search_tools.
func (b *builtins) searchTools(ctx context.Context, c *tools.Invocation) (*mcp.CallToolResult, error) {
	var q SearchQuery
	if err := c.Decode(&q); err != nil {
		return nil, err
	}
	limit := toolsearch.DefaultLimit
	if q.Limit != nil {
		if limit = *q.Limit; limit < 1 || limit > toolsearch.MaxLimit {
			return nil, c.Invalid("limit must be 1 to %d, not %d", toolsearch.MaxLimit, limit)
		}
	}
	used := make([]string, len(q.ContextTools))
	for i, name := range q.ContextTools { // a listed name is accepted too
		used[i] = name
		if t := c.Find(name); t != nil {
			used[i] = t.ID
		}
	}
	found, err := b.Index.Search(ctx, toolsearch.Query{
		Text: q.Query, Limit: limit, ContextTools: used, IncludeRelated: q.IncludeRelated,
		Allowed: func(id string) bool { return c.Find(id) != nil },
	})
	if errs.Is(err, errs.InvalidRequest) {
		return nil, c.Invalid("%s", tools.Detail(err))
	}
	if err != nil {
		return nil, err
	}
	out := SearchResult{Tools: []SearchMatch{}, Meta: SearchMeta{
		Alpha: found.Meta.Alpha, Density: rounded(found.Meta.Density), Total: len(c.Visible()),
		TookMS: rounded(float64(found.Meta.Took.Microseconds()) / 1000), Embeddings: found.Meta.Embeddings,
	}}
	for _, hit := range found.Hits {
		t := c.Find(hit.ID)
		m := SearchMatch{
			Name: hit.ID, Score: rounded(hit.Score), Description: hit.Description, SemanticScore: rounded(hit.SemanticScore), GraphScore: rounded(hit.GraphScore),
			Related: hit.Related, RelatedTools: hit.RelatedTools, Class: t.Class, Listed: t.ListedName,
		}
		if m.RelatedTools == nil {
			m.RelatedTools = []string{}
		}
		if q.IncludeStubs && !t.IsGateway() { // code cannot call the tool that runs it
			m.Stub = stubOf(t)
		}
		out.Tools = append(out.Tools, m)
	}
	return jsonResult(out)
}
