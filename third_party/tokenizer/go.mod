module github.com/tiktoken-go/tokenizer

go 1.26

require github.com/dlclark/regexp2/v2 v2.5.1
