import{a,b,c,d,e,f}from"./chunk-WWAZCNMJ.js";import"./chunk-2CE7QOL4.js";import"./chunk-2S4BNW2Q.js";export{c as HookAgent,f as HookForm,a as HookState,e as Secret,d as Webhooks,b as trouble};
