package intent_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/workflow/intent"
	"comet/internal/workflow/plan"
	"comet/models"
)

// fixed returns a search that finds the same tools for every text.
func fixed(tools ...intent.Tool) func(string) []intent.Tool {
	return func(string) []intent.Tool { return tools }
}

func noPaths(string, string) int { return 0 }

// tool returns a reading tool x:do with a high score.
func tool(schema string) intent.Tool {
	return intent.Tool{ID: "x:do", InputSchema: json.RawMessage(schema), Class: models.ToolRead, Score: 0.9}
}

func propose(t *testing.T, sentence, context string, tools ...intent.Tool) intent.Proposal {
	t.Helper()
	p, err := intent.Propose(intent.Request{Sentence: sentence, Context: json.RawMessage(context), Find: fixed(tools...), Hops: noPaths})
	require.NoError(t, err)
	return p
}

func TestArguments(t *testing.T) {
	object := func(properties, required string) string {
		return `{"type": "object", "properties": {` + properties + `}, "required": [` + required + `], "additionalProperties": false}`
	}
	text := `{"type": "string"}`
	repository := object(`"owner": `+text+`, "repo": `+text, `"owner", "repo"`)
	for name, c := range map[string]struct {
		sentence, schema, want string
		missing                string // pointers with a space between them
	}{
		"quoted text":                   {`find "a b"`, object(`"query": `+text, `"query"`), `{"query": "a b"}`, ""},
		"French quotation marks":        {`cherche « a b »`, object(`"query": `+text, `"query"`), `{"query": "a b"}`, ""},
		"elision":                       {`cherche l'élément 'a b'`, object(`"query": `+text, `"query"`), `{"query": "a b"}`, ""},
		"two texts for one field":       {`find "a" "b"`, object(`"query": `+text, `"query"`), `{}`, "/query"},
		"one text for two fields":       {`find "a"`, object(`"left": `+text+`, "right": `+text, `"left", "right"`), `{}`, "/left /right"},
		"named texts":                   {`find left "a" and right: "b"`, object(`"left": `+text+`, "right": `+text, `"left", "right"`), `{"left": "a", "right": "b"}`, ""},
		"name is":                       {`find name is Ada`, object(`"name": `+text+`, "code": `+text, `"name"`), `{"name": "Ada"}`, ""},
		"named":                         {`find a person named Ada in town`, object(`"name": `+text+`, "code": `+text, `"name"`), `{"name": "Ada"}`, ""},
		"name of several words":         {`find name is Ada Lovelace`, object(`"name": `+text+`, "code": `+text, `"name"`), `{}`, "/name"},
		"French name":                   {`cherche un élément intitulé "a"`, object(`"title": `+text+`, "body": `+text, `"title", "body"`), `{"title": "a"}`, "/body"},
		"path":                          {`find src/main.go`, object(`"path": `+text, `"path"`), `{"path": "src/main.go"}`, ""},
		"file name":                     {`find a.txt.`, object(`"path": `+text, `"path"`), `{"path": "a.txt"}`, ""},
		"path is no text":               {`find src/main.go`, object(`"query": `+text, `"query"`), `{}`, "/query"},
		"list of paths":                 {`find a.txt, b.txt and c.txt`, object(`"paths": {"type": "array", "items": `+text+`}`, `"paths"`), `{"paths": ["a.txt", "b.txt", "c.txt"]}`, ""},
		"from and to":                   {`move a.txt to b.txt`, object(`"source": `+text+`, "destination": `+text, `"source", "destination"`), `{"source": "a.txt", "destination": "b.txt"}`, ""},
		"URL":                           {`get https://a.example/b?c=d.`, object(`"url": {"type": "string", "format": "uri"}`, `"url"`), `{"url": "https://a.example/b?c=d"}`, ""},
		"email address":                 {`find ada@example.com`, object(`"email": `+text, `"email"`), `{"email": "ada@example.com"}`, ""},
		"number":                        {`find issue #42`, object(`"issue_number": {"type": "integer"}`, `"issue_number"`), `{"issue_number": 42}`, ""},
		"decimal for an integer":        {`find issue 4.2`, object(`"issue_number": {"type": "integer"}`, `"issue_number"`), `{}`, "/issue_number"},
		"number in words":               {`find issue forty`, object(`"issue_number": {"type": "integer"}`, `"issue_number"`), `{}`, "/issue_number"},
		"number for an optional field":  {`find 5 things`, object(`"limit": {"type": "integer"}`, ``), `{}`, ""},
		"number at the end":             {`find the thing 5`, object(`"thing": {"type": "integer"}, "other": {"type": "integer"}`, `"other"`), `{"thing": 5}`, "/other"},
		"number of things":              {`find 5 things`, object(`"code": {"type": "integer"}`, `"code"`), `{}`, "/code"},
		"number after #":                {`find #5 here`, object(`"code": {"type": "integer"}`, `"code"`), `{"code": 5}`, ""},
		"number is no text":             {`answer message 42`, object(`"text": `+text, `"text"`), `{}`, "/text"},
		"texts of two things":           {`find the thing "a" and its part "b"`, object(`"names": {"type": "array", "items": `+text+`}`, `"names"`), `{}`, "/names"},
		"named number":                  {`find things with limit 5`, object(`"limit": {"type": "integer"}`, ``), `{"limit": 5}`, ""},
		"number outside its range":      {`find things with limit 500`, object(`"limit": {"type": "integer", "maximum": 100}`, `"limit"`), `{}`, "/limit"},
		"identifier":                    {`find channel C024BE91L`, object(`"channel_id": `+text, `"channel_id"`), `{"channel_id": "C024BE91L"}`, ""},
		"repository":                    {`find acme/webshop`, repository, `{"owner": "acme", "repo": "webshop"}`, ""},
		"two repositories":              {`find acme/webshop or acme/other`, repository, `{}`, "/owner /repo"},
		"state":                         {`find open things`, object(`"state": {"type": "string", "enum": ["open", "closed", "all"]}`, ``), `{"state": "open"}`, ""},
		"French state":                  {`cherche les tickets fermés`, object(`"state": {"type": "string", "enum": ["open", "closed", "all"]}`, ``), `{"state": "closed"}`, ""},
		"state and all":                 {`find all open things`, object(`"state": {"type": "string", "enum": ["open", "closed", "all"]}`, ``), `{"state": "open"}`, ""},
		"verb is no state":              {`open things`, object(`"state": {"type": "string", "enum": ["open", "closed"]}`, ``), `{}`, ""},
		"enumeration needs its name":    {`find comments`, object(`"sort": {"type": "string", "enum": ["created", "comments"]}`, ``), `{}`, ""},
		"named enumeration":             {`find things sorted by created`, object(`"sort": {"type": "string", "enum": ["created", "comments"]}`, ``), `{"sort": "created"}`, ""},
		"explicit boolean":              {`find things with raw = true`, object(`"raw": {"type": "boolean"}`, ``), `{"raw": true}`, ""},
		"French boolean":                {`cherche avec raw: non`, object(`"raw": {"type": "boolean"}`, ``), `{"raw": false}`, ""},
		"boolean is not guessed":        {`find raw things`, object(`"raw": {"type": "boolean"}`, `"raw"`), `{}`, "/raw"},
		"optional type of pydantic":     {`find things with limit 5`, object(`"limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]}`, ``), `{"limit": 5}`, ""},
		"text that looks like a result": {`find "$t1.result"`, object(`"query": `+text, `"query"`), `{}`, "/query"},
		"unclear quotation marks":       {`find 'it''s'`, object(`"query": `+text, `"query"`), `{}`, "/query"},
		"only argument":                 {`find things`, object(`"sql": `+text, ``), `{}`, "/sql"},
		"undeclared argument":           {`find "a"`, `{"type": "object", "required": ["query/text"]}`, `{}`, "/query~1text"},
		"object in a list":              {`find an entity named "Ada" of type "person"`, object(`"entities": {"type": "array", "items": `+object(`"name": `+text+`, "entityType": `+text+`, "notes": {"type": "array", "items": `+text+`}`, `"name", "entityType", "notes"`)+`}`, `"entities"`), `{"entities": [{"name": "Ada", "entityType": "person"}]}`, "/entities/0/notes"},
		"optional object":               {`find things`, object(`"filter": `+object(`"name": `+text+`, "code": `+text, `"name", "code"`), ``), `{}`, ""},
		"part of an optional object":    {`find name is Ada`, object(`"filter": `+object(`"name": `+text+`, "code": `+text, `"name", "code"`), ``), `{"filter": {"name": "Ada"}}`, "/filter/code"},
	} {
		t.Run(name, func(t *testing.T) {
			p := propose(t, c.sentence, "", tool(c.schema))
			require.Len(t, p.Steps, 1)
			assert.JSONEq(t, c.want, string(p.Steps[0].Arguments))
			assert.Equal(t, strings.Fields(c.missing), append([]string{}, missingOf(&p, "t1")...))
		})
	}
}

func TestContextFillsPropertiesOfItsNames(t *testing.T) {
	schema := `{"type": "object", "properties": {"path": {"type": "string"}, "id": {"type": "integer"}, "filter": {"type": "object", "properties": {"name": {"type": "string"}}}}, "required": ["path", "id"]}`
	p := propose(t, "read it all", `{"path": "a.txt", "id": 12345678901234567890, "name": "no", "filter": {"name": "x"}}`, tool(schema))
	assert.JSONEq(t, `{"path": "a.txt", "id": 12345678901234567890, "filter": {"name": "x"}}`, string(p.Steps[0].Arguments))
	assert.Contains(t, string(p.Steps[0].Arguments), "12345678901234567890")

	p = propose(t, "read b.txt", `{"path": "a.txt", "id": "seven"}`, tool(schema))
	assert.JSONEq(t, `{"path": "b.txt"}`, string(p.Steps[0].Arguments), "the sentence has precedence, and an invalid value is not used")
	assert.Equal(t, []string{"/id"}, missingOf(&p, "t1"))

	p = propose(t, "read things", `{"path": "\u0024t1.result", "id": 1}`, tool(schema))
	assert.Equal(t, []string{"/path"}, missingOf(&p, "t1"), "a value of the context is no reference")
}

func TestMissingArgumentsAreDescribed(t *testing.T) {
	p := propose(t, "read things", "", tool(`{"type": "object", "properties": {"path": {"type": "string", "description": "Path of the file"}}, "required": ["path"]}`))
	require.Len(t, p.Missing, 1)
	assert.Equal(t, "t1", p.Missing[0].Step)
	assert.Equal(t, "Path of the file", p.Missing[0].Description)
	assert.JSONEq(t, `{"type": "string", "description": "Path of the file"}`, string(p.Missing[0].Schema))
	assert.Equal(t, intent.Suggestion, p.Verdict)
}

func TestVerdictFollowsConfidence(t *testing.T) {
	for name, c := range map[string]struct {
		score, rank, density, confidence float64
		verdict                          intent.Verdict
	}{
		"new graph":           {0.80, 0.5, 0.009, 0.85*0.80 + 0.05*0.5 + 0.10*0.50, intent.Execute},
		"growing graph":       {0.80, 0.5, 0.05, 0.65*0.80 + 0.20*0.5 + 0.15*0.50, intent.Suggestion},
		"dense graph":         {0.80, 1, 0.2, 0.55*0.80 + 0.30 + 0.15*0.50, intent.Execute},
		"just enough":         {0.7648, 0, 0, 0.7001, intent.Execute},
		"almost enough":       {0.7646, 0, 0, 0.6999, intent.Suggestion},
		"just a suggestion":   {0.5295, 0, 0, 0.5001, intent.Suggestion},
		"almost a suggestion": {0.5293, 0, 0, 0.4999, intent.ExplicitRequired},
	} {
		t.Run(name, func(t *testing.T) {
			x := tool(`{"type": "object"}`)
			x.Score, x.PageRank = c.score, c.rank
			p, err := intent.Propose(intent.Request{Sentence: "read things", Find: fixed(x), Hops: noPaths, Density: c.density})
			require.NoError(t, err)
			assert.InDelta(t, c.confidence, p.Confidence, 0.0001)
			assert.Equal(t, c.verdict, p.Verdict)
		})
	}
}

func TestRankingKeepsFiveTools(t *testing.T) {
	var tools []intent.Tool
	for i := range 10 {
		tools = append(tools, intent.Tool{ID: "x:" + string(rune('a'+i)), InputSchema: json.RawMessage(`{"type": "object"}`), Class: models.ToolRead, Score: 0.50 + float64(i)/100})
	}
	tools[2].PageRank = 1
	p := propose(t, "read things", "", tools...)
	assert.Equal(t, "x:c", p.Steps[0].Tool, "0.8 score + 0.2 PageRank")
	var others []string
	for _, a := range p.Alternatives {
		others = append(others, a.Tool)
	}
	assert.Equal(t, []string{"x:j", "x:i", "x:h", "x:g"}, others)
}

func TestToolThatFitsTheValuesIsPreferred(t *testing.T) {
	single, several := tool(`{"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}`), tool(`{"type": "object", "properties": {"paths": {"type": "array", "items": {"type": "string"}}}, "required": ["paths"]}`)
	several.ID, several.Score = "x:several", 0.85
	p := propose(t, "read a.txt and b.txt", "", single, several)
	assert.Equal(t, "x:several", p.Steps[0].Tool)

	several.Class = models.ToolDestructive
	p = propose(t, "read a.txt and b.txt", "", single, several)
	assert.Equal(t, "x:do", p.Steps[0].Tool, "but not a more dangerous one")
}

func TestEqualToolsOfTwoServersAreNotExecuted(t *testing.T) {
	one, other := tool(`{"type": "object"}`), tool(`{"type": "object"}`)
	other.ID, other.Score = "y:do", 0.85
	p := propose(t, "read things", "", one, other)
	assert.Equal(t, intent.Suggestion, p.Verdict)
	assert.Equal(t, []string{"either x:do or y:do"}, p.Unclear)
}

func TestStepsThatMayDestroyNeedApproval(t *testing.T) {
	for class, approve := range map[models.ToolClass]bool{models.ToolRead: false, models.ToolWrite: false, models.ToolDestructive: true, "": true, "other": true} {
		x := tool(`{"type": "object"}`)
		x.Class = class
		p := propose(t, "delete things", "", x)
		assert.Equal(t, approve, p.Steps[0].Approve, class)
		assert.Equal(t, intent.Execute, p.Verdict)
	}
}

func TestClauses(t *testing.T) {
	for sentence, steps := range map[string]int{
		"read a.txt":                                               1,
		"read a.txt and b.txt":                                     1,
		"read a.txt and write b.txt":                               2,
		"read a.txt, write b.txt, and then send this":              3,
		"read a.txt. Write b.txt.":                                 2,
		"read a.txt then b.txt":                                    2,
		`read "a and write b"`:                                     1,
		"lire a.txt et l'écrire dans b.txt":                        2,
		"lire a.txt et le fichier b.txt":                           1,
		"lis a.txt, puis écris b.txt":                              2,
		"lis la liste et la recherche":                             1,
		"crée a.txt; supprimez b.txt":                              2,
		"please read a.txt and also write b.txt":                   2,
		"read " + strings.Repeat("a.txt and read ", 19) + "b.txt":  20,
		"read " + strings.Repeat("a.txt and read ", 20) + "b.txt":  0, // too many
		"lire " + strings.Repeat("a.txt, ", 100) + "et lire b.txt": 2,
	} {
		p := propose(t, sentence, "", tool(`{"type": "object", "properties": {"path": {"type": "string"}}}`))
		assert.Len(t, p.Steps, steps, sentence)
		if steps == 0 {
			assert.Equal(t, intent.ExplicitRequired, p.Verdict)
		}
	}
}

func TestDependencies(t *testing.T) {
	read, write := tool(`{"type": "object"}`), tool(`{"type": "object", "properties": {"content": {"type": "string"}}}`)
	read.ID, write.ID, write.Class = "x:read", "x:write", models.ToolWrite
	find := func(text string) []intent.Tool {
		if strings.Contains(text, "write") {
			return []intent.Tool{write}
		}
		return []intent.Tool{read}
	}
	for name, c := range map[string]struct {
		sentence   string
		hops       int
		after      []string
		confidence float64
	}{
		"readers are independent":       {"read this and read that", 0, nil, 0.50},
		"then":                          {"read this then read that", 0, []string{"t1"}, 0.50},
		"a change keeps its place":      {"read this and write that", 0, []string{"t1"}, 0.50},
		"reference":                     {"read this and write the result", 0, []string{"t1"}, 0.50},
		"path of one hop":               {"read this and read that", 1, []string{"t1"}, 0.95},
		"path of two hops":              {"read this and read that", 2, []string{"t1"}, 0.80},
		"path of three hops":            {"read this and read that", 3, []string{"t1"}, 0.65},
		"path of four hops":             {"read this and read that", 4, nil, 0.50},
		"path of a wrong negative size": {"read this and read that", -1, nil, 0.50},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := intent.Propose(intent.Request{Sentence: c.sentence, Find: find, Hops: func(string, string) int { return c.hops }})
			require.NoError(t, err)
			require.Len(t, p.Steps, 2)
			assert.Equal(t, c.after, p.Steps[1].DependsOn)
			assert.InDelta(t, 0.85*0.9+0.10*0.50, p.Confidence, 0.0001, "the first step is the weakest")
		})
	}
}

func TestOrderOfSteps(t *testing.T) {
	find := func(text string) []intent.Tool {
		x := tool(`{"type": "object"}`)
		if strings.Contains(text, "write") {
			x.ID, x.Class = "x:write", models.ToolWrite
		}
		return []intent.Tool{x}
	}
	for sentence, last := range map[string][]string{
		"read this and read that and read more":   nil,
		"read this, then read that and read more": {"t1"},
		"read this and read that and write more":  {"t1", "t2"},
		"write this and read that and read more":  {"t1"},
		"read this, read that, then read more":    {"t1", "t2"},
	} {
		p, err := intent.Propose(intent.Request{Sentence: sentence, Find: find, Hops: noPaths})
		require.NoError(t, err)
		require.Len(t, p.Steps, 3)
		assert.Equal(t, last, p.Steps[2].DependsOn, sentence)
	}
}

func TestReferences(t *testing.T) {
	for name, c := range map[string]struct{ sentence, properties, required, want, missing, unclear string }{
		"its content":           {"read this and save its content", `"content": {"type": "string"}`, `"content"`, `{"content": "$t1.result"}`, "", ""},
		"the result":            {"read this and send the result", `"text": {"type": "string"}, "to": {"type": "string"}`, `"text", "to"`, `{"text": "$t1.result"}`, "/to", ""},
		"French possessive":     {"lis ceci et enregistre son contenu", `"content": {"type": "string"}`, `"content"`, `{"content": "$t1.result"}`, "", ""},
		"in a list":             {"read this and add its content", `"observations": {"type": "array", "items": {"type": "string"}}`, `"observations"`, `{"observations": ["$t1.result"]}`, "", ""},
		"any type":              {"read this and send it", `"data": {}`, `"data"`, `{"data": "$t1.result"}`, "", ""},
		"two fields for it":     {"read this and send it", `"data": {"type": "string"}, "text": {"type": "string"}`, `"data", "text"`, `{}`, "/data /text", "it"},
		"a path is no result":   {"read this and delete it", `"path": {"type": "string"}`, `"path"`, `{}`, "/path", "it"},
		"a number is no result": {"read this and send it", `"value": {"type": "number"}`, `"value"`, `{}`, "/value", "it"},
		"content of another":    {"read this and save the content of that", `"content": {"type": "string"}`, `"content"`, `{}`, "/content", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := propose(t, c.sentence, "", tool(`{"type": "object", "properties": {`+c.properties+`}, "required": [`+c.required+`]}`))
			require.Len(t, p.Steps, 2)
			assert.JSONEq(t, c.want, string(p.Steps[1].Arguments))
			assert.Equal(t, strings.Fields(c.missing), append([]string{}, missingOf(&p, "t2")...))
			assert.Equal(t, strings.Fields(c.unclear), p.Unclear)
		})
	}
}

func TestWhatAPlanCannotExpressIsNotExecuted(t *testing.T) {
	schema := `{"type": "object", "properties": {"path": {"type": "string"}, "branch": {"type": "string"}}}`
	for sentence, unclear := range map[string][]string{
		"don't read a.txt":              {"don"},
		"read a.txt if it is there":     {"it", "if"},
		"read a.txt from branch dev":    {"branch"},
		"read a.txt \"b\"":              {"b"},
		"read all of a/ except a/b.txt": {"a/", "a/b.txt", "except"},
		"read each file":                {"each"},
		"write a.txt tomorrow":          {"tomorrow"},
	} {
		p := propose(t, sentence, "", tool(schema))
		assert.NotEqual(t, intent.Execute, p.Verdict, sentence)
		assert.Subset(t, p.Unclear, unclear, sentence)
	}
}

func TestUnknownWordIsUnclear(t *testing.T) {
	find := func(text string) []intent.Tool {
		x := tool(`{"type": "object"}`)
		if !strings.Contains(text, "yellow") {
			x.Score = 0.96
		}
		return []intent.Tool{x}
	}
	p, err := intent.Propose(intent.Request{Sentence: "read yellow things", Find: find, Hops: noPaths})
	require.NoError(t, err)
	assert.Equal(t, intent.Suggestion, p.Verdict)
	assert.Equal(t, []string{"yellow"}, p.Unclear)
}

func TestLongClauseIsNotExecuted(t *testing.T) {
	assert.Equal(t, intent.Execute, propose(t, "read"+strings.Repeat(" things", 59), "", tool(`{"type": "object"}`)).Verdict)
	assert.Equal(t, intent.Suggestion, propose(t, "read"+strings.Repeat(" things", 60), "", tool(`{"type": "object"}`)).Verdict)
}

func TestChangesMustBeRequested(t *testing.T) {
	x := tool(`{"type": "object", "properties": {"id": {"type": "integer"}, "title": {"type": "string"}}, "required": ["id"]}`)
	x.ID, x.Class = "x:update", models.ToolWrite
	assert.Equal(t, intent.Suggestion, propose(t, "close the thing with id 4", "", x).Verdict, "the change is not stated")
	assert.Equal(t, intent.Suggestion, propose(t, `how to change the title "a" of id 4`, "", x).Verdict)
	assert.Equal(t, intent.Execute, propose(t, `please change the title to: "a" with id 4`, "", x).Verdict)
}

func TestSchemaThatCannotBeUsed(t *testing.T) {
	for _, schema := range []string{``, `null`, `[]`, `{"type": 5}`} {
		p := propose(t, "read a.txt", "", tool(schema))
		assert.Equal(t, intent.Suggestion, p.Verdict, schema)
		assert.JSONEq(t, `{}`, string(p.Steps[0].Arguments))
	}
	for _, property := range []string{`{"pattern": "(?=x)"}`, `{"$ref": "https://example.com/schema.json"}`, `{"$ref": "#"}`, `{"allOf": [{"\u0024ref": "#/properties/path"}]}`, `{"$dynamicRef": "#"}`} {
		p := propose(t, "read a.txt and b.txt", `{"path": "c.txt"}`, tool(`{"properties": {"path": `+property+`}, "required": ["path"]}`))
		assert.Equal(t, intent.Suggestion, p.Verdict, property)
		assert.Equal(t, []string{"/path"}, missingOf(&p, "t1"), property)
	}
	for _, schema := range []string{`{"$ref": "#"}`, `{"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$ref": "#/$defs/a"}}}`} {
		assert.Equal(t, intent.Suggestion, propose(t, "read things", "", tool(schema)).Verdict, schema)
	}
}

func TestInvalidRequests(t *testing.T) {
	for name, r := range map[string]intent.Request{
		"no sentence":            {Sentence: " \n"},
		"too long":               {Sentence: strings.Repeat("a", intent.MaxSentence+1)},
		"context is a list":      {Sentence: "a", Context: json.RawMessage(`[]`)},
		"context is not JSON":    {Sentence: "a", Context: json.RawMessage(`{`)},
		"context is too long":    {Sentence: "a", Context: json.RawMessage(`{"a": "` + strings.Repeat("a", plan.MaxArguments) + `"}`)},
		"context is a JSON text": {Sentence: "a", Context: json.RawMessage(`"a"`)},
	} {
		_, err := intent.Propose(r)
		assert.True(t, errs.Is(err, errs.InvalidRequest), name)
	}
}

func TestWithoutTools(t *testing.T) {
	p := propose(t, "read a.txt", "")
	assert.Equal(t, intent.Proposal{Verdict: intent.ExplicitRequired, Steps: []plan.Step{}, Missing: []intent.Missing{}, Unclear: []string{"read file"}, Alternatives: []intent.Alternative{}}, p)
}

// FuzzPropose checks that each proposal is a valid plan, and that what is executed is complete.
func FuzzPropose(f *testing.F) {
	schema := `{"type": "object", "properties": {"path": {"type": "string"}, "labels": {"type": "array", "items": {"type": "string"}}, "n": {"type": "integer"}, "content": {}}, "required": ["path"]}`
	f.Add("read config.json and write its content to b.txt", `{"n": 4}`, schema, 0.9, 0.5)
	f.Add("lis « a.txt » puis supprime l'entité \"$t1.result\"", ``, `{"required": ["a", "a", ""], "properties": {"\u0000": {"$ref": "#"}}}`, 1.0, 0.0)
	f.Add("x is 1, y: 2 = 3 'a''b' \"", `{"x": "\u0024t1.result"}`, `{"properties": {"x": {"type": ["null", "number"]}, "y": {"anyOf": [{"type": "object", "properties": {"y": true}}]}}}`, 2.0, -1.0)
	f.Fuzz(func(t *testing.T, sentence, context, schema string, score, rank float64) {
		x := intent.Tool{ID: "x:do", InputSchema: json.RawMessage(schema), Class: models.ToolRead, Score: score, PageRank: rank}
		p, err := intent.Propose(intent.Request{Sentence: sentence, Context: json.RawMessage(context), Find: fixed(x), Hops: func(string, string) int { return 1 }})
		if err != nil {
			assert.True(t, errs.Is(err, errs.InvalidRequest))
			return
		}
		if len(p.Steps) > 0 {
			_, err = plan.New(p.Steps, "")
			require.NoError(t, err)
		}
		if p.Verdict != intent.Execute {
			return
		}
		require.NotEmpty(t, p.Steps)
		assert.Empty(t, p.Missing)
		var s jsonschema.Schema
		require.NoError(t, json.Unmarshal([]byte(schema), &s))
		r, err := s.Resolve(nil)
		require.NoError(t, err)
		for _, step := range p.Steps {
			var arguments any
			require.NoError(t, json.Unmarshal(step.Arguments, &arguments))
			require.NoError(t, r.Validate(arguments))
		}
	})
}
