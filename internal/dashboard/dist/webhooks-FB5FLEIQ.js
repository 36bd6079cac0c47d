import{a,b,c,d,e,f}from"./chunk-B4265HRJ.js";import"./chunk-UX6DYH7P.js";import"./chunk-MEIMG7IO.js";export{c as HookAgent,f as HookForm,a as HookState,e as Secret,d as Webhooks,b as trouble};
