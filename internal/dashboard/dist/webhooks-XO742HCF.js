import{a,b,c,d,e,f}from"./chunk-SQJ5N7XO.js";import"./chunk-JQYGEMHU.js";import"./chunk-FRFH4UC7.js";export{c as HookAgent,f as HookForm,a as HookState,e as Secret,d as Webhooks,b as trouble};
