package sandbox

import (
	"encoding/json"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/evanw/esbuild/pkg/api"
)

// The code is the body of a function in an array that begins with a marker. Code that closes the
// function changes the array, which the prelude detects. The code begins on the second line.
const (
	openBody        = "\"use strict\";[0,async()=>{\n"
	closeBody       = "\n}]"
	openExpression  = "\"use strict\";[0,async()=>{return (\n"
	closeExpression = "\n)}]"
	// An expression must also be an element of an array: "1) + (2" is not.
	openElement  = "[async()=>{return [\n"
	closeElement = "\n]}]"
)

// compile translates TypeScript. A single expression is returned, all else is statements.
func compile(code string) (*compiled, *failedFrame) {
	if expression, ok := singleExpression(code); ok {
		if js, failed := transform(openExpression, expression, closeExpression); failed == nil {
			return js, nil
		}
	}
	return transform(openBody, code, closeBody)
}

// singleExpression returns the code without trailing semicolons, if that is one expression.
func singleExpression(code string) (string, bool) {
	if isBlank(code) {
		return "", false
	}
	if isExpression(code) {
		return code, true
	}
	// The expression ends at a semicolon that only comments follow. Comments may contain
	// semicolons too; more than a few are not tried.
	rest := code
	for range 8 {
		i := strings.LastIndexByte(rest, ';')
		if i < 0 {
			break
		}
		rest = code[:i]
		if isBlank(code[i+1:]) && isExpression(rest) {
			return rest, !isBlank(rest)
		}
	}
	return "", false
}

func isExpression(code string) bool {
	return len(api.Transform(openElement+code+closeElement, options(api.SourceMapNone)).Errors) == 0 &&
		len(api.Transform(openExpression+code+closeExpression, options(api.SourceMapNone)).Errors) == 0
}

// isBlank reports whether a text has only space, semicolons and comments.
func isBlank(text string) bool {
	for {
		text = strings.TrimLeft(text, " \t\r\n;\uFEFF\u00A0")
		switch {
		case text == "":
			return true
		case strings.HasPrefix(text, "//"):
			_, text, _ = strings.Cut(text, "\n")
		case strings.HasPrefix(text, "/*"):
			_, after, closed := strings.Cut(text[2:], "*/")
			if !closed {
				return false
			}
			text = after
		default:
			return false
		}
	}
}

func options(sourcemap api.SourceMap) api.TransformOptions {
	return api.TransformOptions{
		Loader: api.LoaderTS, Target: api.ES2023, Sourcemap: sourcemap, SourcesContent: api.SourcesContentExclude,
		LegalComments: api.LegalCommentsNone, LogLevel: api.LogLevelSilent, TreeShaking: api.TreeShakingFalse, Charset: api.CharsetUTF8,
	}
}

func transform(open, code, end string) (*compiled, *failedFrame) {
	done := api.Transform(open+code+end, options(api.SourceMapExternal))
	lines := strings.Count(code, "\n") + 1
	if len(done.Errors) > 0 {
		return nil, syntaxError(done.Errors[0], lines)
	}
	var m struct {
		Mappings string `json:"mappings"`
	}
	if err := json.Unmarshal(done.Map, &m); err != nil {
		return nil, &failedFrame{Name: Crashed, Message: err.Error()}
	}
	return &compiled{Code: string(done.Code), Mappings: m.Mappings, Lines: lines}, nil
}

// syntaxError converts an error of the compiler, with its position in the caller's code.
func syntaxError(m api.Message, lines int) *failedFrame {
	f := &failedFrame{Name: Syntax, Message: m.Text}
	if m.Location == nil {
		return f
	}
	before := m.Location.LineText[:min(m.Location.Column, len(m.Location.LineText))]
	f.Line, f.Column = m.Location.Line-1, utf8.RuneCountInString(before)+1
	word := strings.TrimSpace(regexp.MustCompile(`\b(import|namespace|module)\s*$`).FindString(before))
	if m.Text == `Unexpected "export"` {
		word = "export"
	}
	advice := map[string]string{"import": "use tools by their names", "export": "return the result", "namespace": "use an object", "module": "use an object"}[word]
	if advice != "" {
		f.Message = word + " is not supported, because the code is the body of a function: " + advice
	}
	switch {
	case f.Line < 1:
		f.Line, f.Column = 1, 1
	case f.Line > lines:
		f.Line, f.Column = lines, 1 // the compiler reports it after the end
		f.Message += " at the end of the code"
	}
	return f
}

// endsInExpression reports whether the last statement of compiled code is an expression that may be
// meant as the result. Each statement begins on its own line, indented by two spaces.
func endsInExpression(js string) bool {
	start, other := regexp.MustCompile(`(?m)^  [^\s)}\]].*$`), regexp.MustCompile(`^  (console\.|\{|\w+:|(const|let|var|class|function|async function|if|for|while|do|switch|try|throw|return)\b)`)
	lines := start.FindAllString(js, -1)
	return len(lines) > 0 && !other.MatchString(lines[len(lines)-1])
}
