package sandbox

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/evanw/esbuild/pkg/api"
)

// maxCompiled is how much a compiled code may have, with the way back to its lines, to be
// kept by the parent.
const maxCompiled = 512 << 10

// The code is the inside of a function in a list, which begins with a mark. What would close
// the function and go on cannot open another one without making another list of it, which
// the prelude notices. The code begins on a line of its own, the second.
const (
	openBody        = "\"use strict\";[0,async()=>{\n"
	closeBody       = "\n}]"
	openExpression  = "\"use strict\";[0,async()=>{return (\n"
	closeExpression = "\n)}]"
	// An expression also has to be an element of a list: "1) + (2" is not.
	openElement  = "[async()=>{return [\n"
	closeElement = "\n]}]"
)

// compile makes JavaScript of TypeScript. A single expression is returned; anything else is
// statements, which may return something.
func compile(code string) (*compiled, *failedFrame) {
	if expression, ok := singleExpression(code); ok {
		if js, failed := transform(openExpression, expression, closeExpression); failed == nil {
			return js, nil
		}
	}
	return transform(openBody, code, closeBody)
}

// singleExpression is the code without the semicolons behind it, if that is one expression.
func singleExpression(code string) (string, bool) {
	if isBlank(code) {
		return "", false
	}
	if isExpression(code) {
		return code, true
	}
	// Only a semicolon with nothing but comments behind it can be the end. Comments may have
	// semicolons, too, but nobody ends with very many.
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

// isBlank reports whether a text is nothing but space, semicolons and comments.
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

// warmCompiler does what the compiler does once.
func warmCompiler() { _, _ = compile("const a: number = await 1; return a") }

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

// syntaxError says where in the code an error of the compiler's is.
func syntaxError(m api.Message, lines int) *failedFrame {
	f := &failedFrame{Name: Syntax, Message: m.Text}
	if m.Location == nil {
		return f
	}
	f.Line = m.Location.Line - 1
	f.Column = utf8.RuneCountInString(m.Location.LineText[:min(m.Location.Column, len(m.Location.LineText))]) + 1
	switch {
	case f.Line < 1:
		f.Line, f.Column = 1, 1
	case f.Line > lines:
		f.Line, f.Column = lines, 1 // it is noticed behind the end
		f.Message += " at the end of the code"
	}
	return f
}
