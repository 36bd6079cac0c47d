import{a,b,c}from"./chunk-TPJELTWG.js";import"./chunk-VIYC53MI.js";import"./chunk-CLQTT6E4.js";export{a as TaskState,c as Tasks,b as what};
