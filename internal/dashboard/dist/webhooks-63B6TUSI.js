import{a,b,c,d,e,f}from"./chunk-AWKHCIFZ.js";import"./chunk-VIYC53MI.js";import"./chunk-CLQTT6E4.js";export{c as HookAgent,f as HookForm,a as HookState,e as Secret,d as Webhooks,b as trouble};
