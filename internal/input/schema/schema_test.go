package schema_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/input/schema"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	for text, c := range map[string]struct{ valid, invalid string }{
		`{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}`: {`{"path":"x"}`, `{"path":1}`},
		`{"type":"object","required":["path"]}`:                                         {`{"path":null}`, `{}`},
		`{"type":"object","additionalProperties":false}`:                                {`{}`, `{"x":1}`},
		`{"properties":{"n":{"type":"integer"}}}`:                                       {`{"n":12345678901234567890}`, `{"n":1.5}`},
		`{"properties":{"n":{"enum":["a","b"]}}}`:                                       {`{"n":"b"}`, `{"n":"c"}`},
		`true`:                                  {`{}`, ``},
		`false`:                                 {``, `{}`},
		`{"properties":{"child":{"$ref":"#"}}}`: {`{"child":1}`, ``}, // it cannot be used
		`{"$dynamicRef":"#x"}`:                  {`1`, ``},
		`{"properties":{"n":{"type":"integer","minimum":1,"exclusiveMinimum":true}}}`: {`{"n":-1}`, ``},
		`{"pattern":"(?<=a)b"}`: {`"x"`, ``},
		`[]`:                    {`{}`, ``},
		`"object"`:              {`{}`, ``},
		`null`:                  {`{}`, ``},
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			var decoded any
			require.NoError(t, json.Unmarshal([]byte(text), &decoded))
			r := schema.Of(decoded)
			if c.valid != "" {
				require.NoError(t, schema.Validate(r, json.RawMessage(c.valid)))
			}
			if c.invalid != "" {
				require.Error(t, schema.Validate(r, json.RawMessage(c.invalid)))
			}
		})
	}
	require.Nil(t, schema.Of(make(chan int)))
	require.Error(t, schema.Validate(schema.Of(map[string]any{}), json.RawMessage(`{`)))
}
