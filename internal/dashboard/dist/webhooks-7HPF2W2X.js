import{a,b,c,d,e,f}from"./chunk-2UX64F4N.js";import"./chunk-V4AOMWAE.js";import"./chunk-IFYDTCHN.js";export{c as HookAgent,f as HookForm,a as HookState,e as Secret,d as Webhooks,b as trouble};
